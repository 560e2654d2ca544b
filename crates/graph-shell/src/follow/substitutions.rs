//! Substitutions, which are followed once in a walk.
//!
//! The words of a command are looked at several times: for the value of each, for all of them together, for what is outside of
//! quotes. If the command of a substitution were followed each time, those in it would be followed many times that often. The result of a
//! substitution depends on the values that are known and on the place that it is in. The values only grow, and the last
//! walk finds nothing new, so the place alone tells one result of a walk from another.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;

use super::{CommandFollower, Tainted};
use crate::Danger;
use crate::parse::CommandList;

/// The results of the substitutions of a walk, by their lists.
#[derive(Default)]
pub(super) struct Substitutions(HashMap<*const CommandList, Vec<FollowedSubstitution>>);

/// The result of a substitution at a place: the value that it prints, and the dangers in it.
struct FollowedSubstitution {
    /// The list, which lives as long as its address is a key.
    _list: Rc<CommandList>,
    place: SubstitutionPlace,
    printed: Tainted,
    dangers: Vec<Danger>,
}

/// The place of a substitution, as far as its commands can depend on it.
#[derive(Clone)]
struct SubstitutionPlace {
    input: Tainted,
    here: Option<Rc<(String, Range<usize>)>>,
    is_file: bool,
    associative: Rc<BTreeSet<String>>,
    within: Option<Range<usize>>,
    nesting: usize,
}

impl Substitutions {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl SubstitutionPlace {
    fn is(&self, other: &Self) -> bool {
        let is_same_text = match (&self.here, &other.here) {
            (Some(here), Some(other)) => Rc::ptr_eq(here, other) || here == other,
            (here, other) => here.is_none() && other.is_none(),
        };
        is_same_text
            && self.input == other.input
            && self.is_file == other.is_file
            && self.within == other.within
            && self.nesting == other.nesting
            && (Rc::ptr_eq(&self.associative, &other.associative) || self.associative == other.associative)
    }
}

impl CommandFollower {
    /// Follows the list of a substitution; returns what it prints.
    pub(super) fn substitution(&mut self, list: &Rc<CommandList>, input: Tainted) -> Tainted {
        let place = SubstitutionPlace {
            input,
            here: self.here.clone(),
            is_file: self.is_file,
            associative: Rc::clone(&self.associative),
            within: self.within.clone(),
            nesting: self.nesting,
        };
        let known = self.substitutions.0.get(&Rc::as_ptr(list));
        if let Some(followed) = known.and_then(|all| all.iter().find(|followed| followed.place.is(&place))) {
            self.work.scan(followed.dangers.len());
            self.dangers.extend(followed.dangers.iter().cloned());
            return followed.printed.clone();
        }
        let count = self.dangers.len();
        let printed = self.list(list, place.input.as_ref());
        self.associative = Rc::clone(&place.associative);
        distinct(&mut self.dangers, count);
        let dangers = self.dangers[count..].to_vec();
        let followed = FollowedSubstitution { _list: Rc::clone(list), place, printed: printed.clone(), dangers };
        self.substitutions.0.entry(Rc::as_ptr(list)).or_default().push(followed);
        printed
    }
}

/// Removes dangers from `begin` on that are there twice.
fn distinct(dangers: &mut Vec<Danger>, begin: usize) {
    dangers[begin..].sort_by_key(|danger| (danger.range.start, danger.range.end));
    let mut kept = begin;
    for at in begin..dangers.len() {
        let same = |danger: &&Danger| danger.range == dangers[at].range;
        let is_known = dangers[begin..kept].iter().rev().take_while(same).any(|danger| *danger == dangers[at]);
        if !is_known {
            dangers.swap(kept, at);
            kept += 1;
        }
    }
    dangers.truncate(kept);
}
