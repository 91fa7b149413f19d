use super::*;

#[test]
fn held_slots_are_listed_with_their_unit() {
    let shared = Shared::new(1, 64, 0, KeySlots::default());
    shared.lanes[0].hold(3, 7);
    shared.lanes[0].hold(40, 0xD0);
    shared.lanes[0].came_late(40);
    let held: alloc::vec::Vec<_> = shared.lanes[0].held().collect();
    assert_eq!(held, [(3, 7), (40, 0xD0)]);
    assert!(shared.lanes[0].is_late(40) && !shared.lanes[0].is_late(3));
    shared.lanes[0].unhold(3);
    assert_eq!(shared.lanes[0].held().count(), 1);
}
