//! Requests by calls against queues and threads: A. Motin's experiment of 2013.
use std::time::Duration;

use flysch_bench::dispatch::{part_on_null, table};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: u64| arguments.next().and_then(|it| it.parse().ok()).unwrap_or(usual);
    let (count, service) = (number(2_000_000), Duration::from_nanos(number(0)));
    println!("{}", table(count, service));
    let part = part_on_null(count * 10);
    let millions = part.kiops() / 1000.0;
    println!("through a partition on a device that does nothing: {millions:.1} million/s");
}
