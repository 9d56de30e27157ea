//! A closed queueing network: so many clients, each of which runs one transaction after the other.

/// For more clients than this the throughput is extrapolated.
const MOST_CLIENTS: u64 = 4096;

/// What transactions wait for. A hot key serves one transaction at a time, for as long as its window lasts.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Network {
    /// For how long a transaction without any waiting takes beside its demands, in seconds.
    pub(crate) delay_s: f64,
    /// For how long an average transaction holds each of the places that serve one at a time, in seconds.
    pub(crate) demands_s: Vec<f64>,
    /// The most transactions per second that the processors can do.
    pub(crate) most_per_s: f64,
}

impl Network {
    /// Transactions per second with so many clients, by mean value analysis (Reiser and Lavenberg, 1980). Windows of a key
    /// differ less in length than exponentially distributed times: with a squared coefficient of variation of a half, who
    /// comes waits for three quarters of a mean window until the one that it finds is over. A number of clients that is not
    /// whole is interpolated. Beyond 4096 clients, each adds as much as the average of these does, up to what the place with the
    /// greatest demand serves.
    pub(crate) fn throughput(&self, clients: f64) -> f64 {
        let most = 1.0 / self.demands_s.iter().copied().fold(1e-12, f64::max);
        let clients = clients.max(1.0);
        if clients > MOST_CLIENTS as f64 {
            let throughput = self.throughput(MOST_CLIENTS as f64);
            let each = throughput / MOST_CLIENTS as f64;
            return (each * clients).min(most).min(self.most_per_s);
        }
        let whole = clients.floor();
        let mut queues = vec![0.0; self.demands_s.len()];
        let mut busy = vec![0.0; self.demands_s.len()];
        let (mut before, mut throughput) = (0.0, 0.0);
        for client in 1..=whole as u64 + 1 {
            let found = queues.iter().zip(&busy).map(|(queue, busy)| queue - busy / 4.0);
            let waits: Vec<f64> = self
                .demands_s
                .iter()
                .zip(found)
                .map(|(demand, found)| demand * (1.0 + found))
                .collect();
            let takes_s = self.delay_s + waits.iter().sum::<f64>();
            before = throughput;
            throughput = (client as f64 / takes_s.max(1e-9)).min(most);
            queues = waits.iter().map(|wait| wait * throughput).collect();
            busy = self.demands_s.iter().map(|demand| demand * throughput).collect();
        }
        let between = before + (throughput - before) * (clients - whole);
        between.min(self.most_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(delay_s: f64, demands_s: &[f64]) -> Network {
        Network { delay_s, demands_s: demands_s.to_vec(), most_per_s: f64::INFINITY }
    }

    #[test]
    fn one_client_waits_for_nobody_and_many_for_the_place_with_the_greatest_demand() {
        let network = network(0.008, &[0.002, 0.0005]);
        assert!((network.throughput(1.0) - 1.0 / 0.0105).abs() < 1e-6);
        let many = network.throughput(200.0);
        assert!((495.0..=500.0).contains(&many), "{many}");
    }

    #[test]
    fn clients_of_one_place_keep_it_busy_and_those_of_several_do_not_quite() {
        assert!((network(0.0, &[0.01]).throughput(2.0) - 100.0).abs() < 1e-6);
        let several = network(0.0, &[0.01; 8]).throughput(16.0);
        assert!((60.0..100.0).contains(&several), "{several}");
    }

    #[test]
    fn processors_bound_it() {
        let network = Network { most_per_s: 70.0, ..network(0.001, &[0.0]) };
        assert_eq!(network.throughput(5.0), 70.0);
        assert!(network.throughput(5.5) <= 70.0);
        let many = [MOST_CLIENTS as f64 + 1.0, 1e6, f64::INFINITY];
        assert_eq!(many.map(|clients| network.throughput(clients)), [70.0; 3]);
    }

    #[test]
    fn any_number_of_clients_is_solved_at_once_and_does_not_exceed_what_a_place_serves() {
        for clients in [1e6, 1e18, f64::MAX, f64::INFINITY] {
            let busy = network(0.008, &[0.002, 0.0005]).throughput(clients);
            assert!((busy - 500.0).abs() < 1e-6, "{clients}: {busy}");
        }
        // Nobody waits for anybody.
        let idle = network(1.0, &[]);
        assert!((idle.throughput(1e6) - 1e6).abs() < 1.0);
        let most = MOST_CLIENTS as f64;
        assert!((idle.throughput(most + 0.5) - (most + 0.5)).abs() < 1e-6, "without a jump");
    }
}
