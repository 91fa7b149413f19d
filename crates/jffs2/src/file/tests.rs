use proptest::prelude::*;

use super::*;

fn extent(number: u32, start: u32, len: u32) -> Extent {
    Extent { number, version: number, start, end: start + len, is_hole: false, is_lost: false }
}

#[test]
fn of_copies_with_one_version_the_good_one_shows() {
    let copies = [extent(0, 0, 10), Extent { version: 0, ..extent(1, 0, 10) }];
    for good in [0, 1] {
        let judge = |e: &Extent| if e.number == good { Data::Good } else { Data::Damaged };
        let fragments = overlay(&copies, judge);
        assert_eq!(fragments.len(), 1);
        assert_eq!(fragments[0].piece, Piece::Data(good));
    }
}

#[test]
fn torn_data_lets_older_data_show_and_damaged_data_does_not() {
    let writes = [extent(0, 0, 10), extent(1, 5, 10)];
    let judge = |of_newer| move |e: &Extent| if e.number == 1 { of_newer } else { Data::Good };
    let torn = overlay(&writes, judge(Data::Torn));
    assert_eq!(torn.len(), 1);
    assert_eq!((torn[0].start, torn[0].end, torn[0].piece), (0, 10, Piece::Data(0)));
    let damaged = overlay(&writes, judge(Data::Damaged));
    assert_eq!(damaged.len(), 2);
    assert_eq!((damaged[0].end, damaged[1].piece), (5, Piece::Damaged(1)));
}

#[test]
fn torn_extents_over_many_others_do_not_pass_all_of_them() {
    const COUNT: u32 = 2000;
    let wide = (0..COUNT).map(|number| extent(number, 0, COUNT * 2));
    let narrow = (0..COUNT).map(|number| extent(COUNT + number, number * 2, 1));
    let extents: Vec<Extent> = wide.chain(narrow).collect();
    crate::steps::take();
    let judge = |it: &Extent| if it.number < COUNT { Data::Torn } else { Data::Good };
    assert_eq!(overlay(&extents, judge).len(), COUNT as usize);
    // The first of the wide ones is good.
    let judge = |it: &Extent| if (1..COUNT).contains(&it.number) { Data::Torn } else { Data::Good };
    assert_eq!(overlay(&extents, judge).len(), COUNT as usize * 2);
    let steps = crate::steps::take();
    assert!(steps < u64::from(COUNT) * 10, "{steps} ranges were passed");
}

proptest! {
    /// Compares with writing the extents into an array one after the other.
    #[test]
    fn the_newest_extent_shows_everywhere(
        writes in prop::collection::vec((0u32..60, 1u32..40, 0u8..6), 0..25),
    ) {
        let mut expected = [None; 100];
        let mut extents = vec![];
        let mut torn = vec![];
        for (number, &(start, len, luck)) in writes.iter().enumerate() {
            let extent = extent(number as u32, start, len);
            torn.push(luck == 0);
            if luck != 0 {
                expected[start as usize..(start + len) as usize].fill(Some(number as u32));
            }
            extents.push(extent);
        }
        let fragments = overlay(&extents, |extent| {
            if torn[extent.number as usize] { Data::Torn } else { Data::Good }
        });
        let mut found = [None; 100];
        for fragment in &fragments {
            let Piece::Data(number) = fragment.piece else { panic!("no holes were put in") };
            prop_assert_eq!(fragment.node_start, writes[number as usize].0);
            for byte in &mut found[fragment.start as usize..fragment.end as usize] {
                prop_assert_eq!(byte.replace(number), None, "fragments overlap");
            }
        }
        prop_assert!(fragments.is_sorted_by_key(|fragment| fragment.start));
        prop_assert_eq!(found, expected);
    }
}
