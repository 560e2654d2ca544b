//! Counters in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use graph_runtime::Observer;
use graph_runtime::observer::Event;

/// The counters of the service, by name and label.
#[derive(Default)]
pub struct Metrics {
    counters: Mutex<BTreeMap<(&'static str, String), u64>>,
}

impl Metrics {
    fn add(&self, name: &'static str, label: String) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        *counters.entry((name, label)).or_default() += 1;
    }

    /// Returns all counters, a line each.
    pub fn text(&self) -> String {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.iter().fold(String::new(), |mut text, ((name, label), count)| {
            writeln!(text, "{name}{{{label}}} {count}").expect("a string takes any text");
            text
        })
    }
}

// Called between two steps of a run: it must not wait.
impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::RunStarted { steps: 0, .. } => self.add("orders_started_total", String::new()),
            Event::RunStarted { .. } => self.add("orders_resumed_total", String::new()),
            Event::StepCompleted { node, error, .. } => {
                let outcome = if error.is_some() { "failed" } else { "ok" };
                self.add("order_steps_total", format!("node=\"{node}\",outcome=\"{outcome}\""));
            }
            Event::RunEnded { status, .. } => self.add("orders_ended_total", format!("status=\"{}\"", status.name())),
            _ => {}
        }
    }
}
