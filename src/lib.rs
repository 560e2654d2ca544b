//! The repository's own graphs, as modules.

graph_runtime::include_graphs!();
