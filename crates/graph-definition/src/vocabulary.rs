//! The words of the format: the fields of its mappings, the words that these can hold, and their bounds.
//!
//! The parser reads by these tables. A description of the format that is generated from them, such as the JSON Schema of
//! `graph-editor`, cannot disagree with the parser.

pub use crate::definition::action::FIELDS as ACTION;
pub use crate::definition::agent::MOST_TURNS;
pub use crate::definition::channel::{CHANNEL, FUNCTION, ORDERS};
pub use crate::definition::conduct::{CATEGORIES, LIMITS as NODE_LIMITS, MOST_ATTEMPTS, RETRY};
pub use crate::definition::hook::{
    CONTROLS, FIELDS as HOOK, INLINE, bounds_of as bounds_of_control, is_useful as is_useful_control,
};
pub use crate::definition::node::{
    ALL, ANSWERED_BY, BY, EDGE, INTERRUPTS, ITEM, MOST_AT_A_TIME, MOST_EDGES, MOST_NODES, MOST_SIGNERS,
    ON_BRANCH_ERROR, OVER, QUORUM, REST, SHARE, TYPES as NODE_TYPES, fields_of as fields_of_node,
};
pub use crate::definition::rules::{About, FORMATS, KEYWORDS as RULES, KeywordArgument};
pub use crate::definition::schema::{GUARDED, KNOWN as SCHEMA, NEEDS, SECRET, SINK, TYPES as SCHEMA_TYPES};
pub use crate::definition::settings::{FIELDS as SETTINGS, LIMITS, MOST_LEVELS, ON_ERROR, ON_MAX_STEPS, ON_NO_MATCH};
pub use crate::definition::{CONFIG, ENTRY, EXECUTORS, MOST_SIGNALS, SIGNAL, TOP_LEVEL};
