//! One server on a file: it is killed, paused and misled, and alone decides what becomes of everybody.

use super::faults::Faults;

impl Faults<'_> {
    /// Rounds of work and mischief, each with a kill; why there is no server in the end, if there is none.
    pub(super) async fn befall_one(&mut self, rounds: usize) -> Result<(), String> {
        self.start(&[0]).await?;
        for round in 0..rounds {
            self.wait(600, 1_500).await;
            if round % 2 == 0 {
                self.move_wall_clock(0, round / 2);
                self.wait(200, 500).await;
            }
            // Shorter than most leases last, or longer than all, and than the 2 s that make an outage.
            let is_paused = round % 4 == 1;
            if is_paused {
                let (least, most) = if round % 8 == 1 { (2_300, 3_200) } else { (200, 1_200) };
                self.pause(&[0]);
                self.wait(least, most).await;
            }
            // Every other time it goes on, else it dies in its sleep.
            if is_paused && round % 3 != 0 {
                self.go_on(0);
                self.wait(300, 800).await;
            }
            self.kill_at_work(&[0]).await;
            if round % 3 == 1 {
                // It starts under another wall clock than it died under.
                self.move_wall_clock(0, round);
            }
            if round % 5 == 2 {
                self.wait(2_100, 2_900).await;
            } else {
                self.wait(0, 150).await;
            }
            self.start(&[0]).await?;
        }
        Ok(())
    }
}
