//! How long a hit and a miss take, with how many live registrations, from one thread and from two,
//! and how much memory an entry takes.
//!
//! ```console
//! $ cargo bench -p ibnet-mrcache
//! ```
//!
//! All times are processor time. On a machine that does nothing else that is the time on the clock; on
//! others it leaves out the turns of other programs, but not what they do to the caches.
//!
//! Registering costs nothing here: what is measured is the cache alone. A hit is a look-up of a random
//! part of a random registration, and giving the lease back.
#![allow(clippy::unwrap_used)]

mod population;
#[path = "../../tests/common/random.rs"]
mod random;
mod time;
mod weight;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use population::{Population, Shape};
use time::{ProcessorTime, processor_time};

const SIZES: [usize; 4] = [10, 1_000, 100_000, 1_000_000];

fn main() {
    let mut criterion = Criterion::default()
        .with_measurement(ProcessorTime)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(20)
        .configure_from_args();
    let mut figures = Vec::new();
    for shape in [Shape::Apart, Shape::Nested] {
        for size in SIZES {
            let (population, bytes) = Population::weighed(shape, size);
            let id = format!("{shape}/{size}");
            hits(&mut criterion, &population, &id);
            misses(&mut criterion, &population, &id);
            let (one, two) = throughput(&population);
            figures.push(format!(
                "{id:>16}: {:>6.1} million hits/s from one thread, {:>6.1} from two ({:.2} times), \
                 {bytes:>4} bytes per entry",
                one / 1e6,
                two / 1e6,
                two / one
            ));
        }
    }
    criterion.final_summary();
    println!("\nThroughput in processor time, and memory with the allocator's own:");
    for figure in figures {
        println!("{figure}");
    }
}

fn hits(criterion: &mut Criterion<ProcessorTime>, population: &Population, id: &str) {
    let queries = population.queries(7);
    let mut next = queries.iter().cycle();
    criterion
        .benchmark_group("hit")
        .bench_function(BenchmarkId::from_parameter(id), |bencher| {
            bencher.iter(|| {
                let request = next.next().unwrap();
                black_box(population.hit(request));
            });
        });
}

/// Registers, with no work, what nothing covers, and gives it back.
fn misses(criterion: &mut Criterion<ProcessorTime>, population: &Population, id: &str) {
    let misses = population.misses(8);
    let mut next = misses.iter().cycle();
    criterion
        .benchmark_group("miss-and-release")
        .bench_function(BenchmarkId::from_parameter(id), |bencher| {
            bencher.iter(|| black_box(population.miss(next.next().unwrap())));
        });
}

/// Hits per second from one thread, and from two together: the best of several rounds of each,
/// alternating.
fn throughput(population: &Population) -> (f64, f64) {
    let mut best = (0.0_f64, 0.0_f64);
    for round in 0..8 {
        best.0 = best.0.max(hits_per_second(population, 1, round));
        best.1 = best.1.max(hits_per_second(population, 2, round));
    }
    best
}

fn hits_per_second(population: &Population, threads: u64, round: u64) -> f64 {
    const TIME: Duration = Duration::from_millis(100);
    let start = Barrier::new(threads as usize);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, queries) = (&start, population.queries(100 + round * 10 + thread));
                scope.spawn(move || {
                    start.wait();
                    let begin = processor_time();
                    let mut count = 0_usize;
                    loop {
                        let from = count % queries.len();
                        for request in &queries[from..from + 1024] {
                            black_box(population.hit(request));
                        }
                        count += 1024;
                        let elapsed = processor_time() - begin;
                        if elapsed >= TIME {
                            return count as f64 / elapsed.as_secs_f64();
                        }
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    })
}
