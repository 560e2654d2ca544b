//! Version 2 of the format, which is read and no longer written.
//!
//! In version 2, a visit names one `edge` instead of a list of edges, and the activations of the next step have no numbers,
//! since they follow from those of the visits. Version 2 has no branches.

use std::fmt;

use serde::Deserializer;
use serde::de::{SeqAccess, Visitor};

use crate::record::entry::{Entry, Target};

/// Reads the edges of a visit: a list, or the one `edge` of version 2.
pub(super) fn edges<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u16>, D::Error> {
    from.deserialize_any(OneOrMore)
}

struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Vec<u16>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index of an edge, or a list of them")
    }

    fn visit_u64<E: serde::de::Error>(self, edge: u64) -> Result<Vec<u16>, E> {
        u16::try_from(edge).map(|edge| vec![edge]).map_err(|_| E::custom(format!("{edge} is not the index of an edge")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u16>, A::Error> {
        let mut edges = Vec::new();
        while let Some(edge) = list.next_element()? {
            edges.push(edge);
        }
        Ok(edges)
    }
}

/// Returns the entry of a version 2 record, with the numbers that the record leaves out.
pub(super) fn numbered(mut entry: Entry) -> Entry {
    let number = |first: u64, next: &mut [Target]| {
        (first + 1..).zip(next).for_each(|(number, target)| target.number = number);
    };
    match &mut entry {
        Entry::Step(step) => {
            let last = step.visits.last().map_or(0, |visit| visit.step);
            number(last, &mut step.next);
        }
        Entry::Snapshot(snapshot) => number(snapshot.steps, &mut snapshot.next),
        Entry::Start(_) | Entry::Calls(_) | Entry::Take(_) | Entry::Resume(_) | Entry::Edit(_) | Entry::End(_) => {}
    }
    entry
}
