use super::*;

#[test]
fn an_order_is_obeyed_by_acknowledging_or_by_being_parked() {
    let shared = Shared::new(2, 4, 0);
    shared.lanes[0].unpark();
    shared.publish(Order::PAUSE);
    assert!(!shared.all_obey());
    shared.lanes[0].obey(shared.order_now());
    assert!(shared.all_obey());
    shared.publish(0);
    assert!(!shared.all_obey(), "every order wants its own answer");
    shared.lanes[0].park();
    assert!(shared.all_obey());
}

#[test]
fn held_slots_are_listed_with_their_unit() {
    let shared = Shared::new(1, 64, 0);
    shared.lanes[0].hold(3, 7);
    shared.lanes[0].hold(40, 0xD0);
    shared.lanes[0].came_late(40);
    let held: alloc::vec::Vec<_> = shared.lanes[0].held().collect();
    assert_eq!(held, [(3, 7), (40, 0xD0)]);
    assert!(shared.lanes[0].is_late(40) && !shared.lanes[0].is_late(3));
    shared.lanes[0].unhold(3);
    assert_eq!(shared.lanes[0].held().count(), 1);
}

#[test]
fn a_call_for_the_host_changes_no_order() {
    let shared = Shared::new(1, 4, 0);
    shared.lanes[0].unpark();
    shared.publish(Order::PAUSE);
    shared.lanes[0].obey(shared.order_now());
    shared.call_host();
    assert!(shared.all_obey());
    assert!(shared.take_call());
    assert!(!shared.take_call());
}
