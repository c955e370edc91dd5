//! Heat in a plate whose left edge is hot: Jacobi steps until nothing changes. It logs the residual of each step, what
//! a step takes, and asks in SQL how it went.

use std::time::Duration;

use telem_client::{ClientError, Counter, Metric, Timer};

const SIDE: usize = 66;
const STEPS_MAX: u32 = 2000;
const TOLERANCE: f64 = 1e-2;

fn main() -> Result<(), ClientError> {
    let residuals = Metric::new("heat_residual").tag("solver", "jacobi").help("Largest change in a step.").gauge()?;
    let updates = Counter::new("heat_updates_total");
    let sweeps = Timer::new("heat_step_seconds");
    // Without a service there is nobody to tell, and the program goes on.
    let _ = telem_client::setting("solver", "jacobi");

    let mut old = vec![[0.0_f64; SIDE]; SIDE];
    for row in &mut old {
        row[0] = 100.0;
    }
    let mut new = old.clone();
    let (mut step, mut residual) = (0, f64::INFINITY);
    while step < STEPS_MAX && residual >= TOLERANCE {
        step += 1;
        residual = sweeps.measure(|| {
            let mut largest = 0.0_f64;
            for i in 1..SIDE - 1 {
                for j in 1..SIDE - 1 {
                    new[i][j] = 0.25 * (old[i - 1][j] + old[i + 1][j] + old[i][j - 1] + old[i][j + 1]);
                    largest = largest.max((new[i][j] - old[i][j]).abs());
                }
            }
            largest
        });
        std::mem::swap(&mut old, &mut new);
        residuals.set_step(residual, step.into());
        updates.add(((SIDE - 2) * (SIDE - 2)) as u64);
    }

    println!("steps: {step}, residual: {residual:.3e}");
    match telem_client::sql_number("SELECT max(value) FROM heat_step_seconds", Duration::from_secs(10)) {
        Ok(slowest) => println!("slowest step: {slowest:.3e} s"),
        Err(error) => println!("slowest step: not known: {error}"),
    }
    Ok(())
}
