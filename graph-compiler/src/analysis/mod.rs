//! What is known of a graph before rules look at it: names, edges, types, and where a run can go.

pub(crate) mod budget;
pub(crate) mod control_flow;
pub(crate) mod coverage;
pub(crate) mod flow;
pub(crate) mod guards;
pub(crate) mod inference;
pub(crate) mod model;
pub(crate) mod set;
pub(crate) mod types_at;
