//! The judge of played runs.
//!
//! Each call of a run is matched to answers before it whose questions show its values, each answer for one call. A question can have the
//! calls of a node matched to its answers if one of them refuses: in each run after that answer comes no call of the node that the question
//! could approve, or all calls can be matched to answers of other questions that can refuse. These questions are found from the last ones
//! on, until there are no more. A run goes wrong if its calls cannot be matched then.
//!
//! A question is the choices before it: the same node asks another one in other runs, or when it is visited again.

use std::collections::{BTreeMap, BTreeSet};

use graph_runtime::Value;
use serde_json::json;

/// An event of a run, in the order in which they happen.
#[derive(Debug, Clone)]
pub(super) enum Happened {
    /// A question that was answered: the place of its choice on the tape, the number of its answers, and the values that it shows.
    Answered { at: usize, answers: usize, shown: Vec<Value> },
    /// A guarded call.
    Paid(Paid),
}

/// A guarded call, or one of those that the run of a graph makes for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Paid {
    /// The node, or the hook.
    pub(super) node: String,
    /// The visit, and the element of a list for which it is made.
    pub(super) visit: (u64, Option<u64>),
    /// The texts of others that it has.
    pub(super) texts: BTreeSet<String>,
    /// Its key, the same for each attempt.
    pub(super) key: String,
    /// Whether it has a question of its own, inside of the run that the node has begun.
    pub(super) has_own: bool,
}

#[derive(Debug)]
pub(super) struct PlayedRun {
    pub(super) tape: Vec<usize>,
    pub(super) happened: Vec<Happened>,
}

impl PlayedRun {
    /// Whether it makes a call that needs approval.
    pub(super) fn pays(&self) -> bool {
        !units(self).is_empty()
    }

    /// Returns the number of answers to the question at a place of the tape.
    fn answers_at(&self, place: usize) -> usize {
        let answers = self.happened.iter().find_map(|happened| match happened {
            Happened::Answered { at, answers, .. } if *at == place => Some(*answers),
            _ => None,
        });
        answers.expect("an answer is there")
    }
}

/// A guarded call that needs an approval, or one for each element of a list.
struct Unit<'r> {
    node: &'r str,
    /// Where it begins among the events of its run.
    at: usize,
    /// Where its last call is.
    last: usize,
    texts: BTreeSet<&'r str>,
    /// The visits and elements for which it is made.
    visits: BTreeSet<(u64, Option<u64>)>,
}

fn units(run: &PlayedRun) -> Vec<Unit<'_>> {
    let mut units: Vec<Unit<'_>> = Vec::new();
    for (at, happened) in run.happened.iter().enumerate() {
        let Happened::Paid(Paid { node, visit, texts, has_own, .. }) = happened else { continue };
        let texts = texts.iter().map(String::as_str);
        // A fan-out visits its nodes `…p` once for each element, one visit behind the other.
        let follows = |unit: &Unit<'_>| node.ends_with('p') && unit.last + 1 == at && unit.visits.len() == 1;
        let is_same = |unit: &&mut Unit<'_>| {
            !has_own && unit.node == node && (unit.visits.iter().any(|one| one.0 == visit.0) || follows(unit))
        };
        match units.iter_mut().find(is_same) {
            Some(unit) => {
                unit.texts.extend(texts);
                unit.visits.insert(*visit);
                unit.last = at;
            }
            None => {
                let visits = BTreeSet::from([*visit]);
                units.push(Unit { node, at, last: at, texts: texts.collect(), visits });
            }
        }
    }
    units.into_iter().filter(|unit| !unit.texts.is_empty()).collect()
}

/// Whether a question shows a text; if a call is made for each element, also that list.
fn shows_text(shown: &[Value], text: &str, unit: &Unit<'_>) -> bool {
    let list = json!(["element 0", "element 1"]);
    let is_text = |value: &Value| value.as_str() == Some(text);
    let is_in = |value: &Value| is_text(value) || value.as_array().is_some_and(|list| list.iter().any(is_text));
    shown.iter().any(is_in) && (unit.visits.len() == 1 || shown.contains(&list))
}

/// A question, by the choices before it, about the calls of a node.
type Question<'r> = (&'r [usize], &'r str);

/// A text of a call that needs approval, with the answers that may approve it.
struct Need<'r> {
    /// The number of its call among those of its run.
    unit: usize,
    node: &'r str,
    /// The answers before the call whose questions show the text, by their places on the tape.
    answers: Vec<usize>,
}

/// Returns what must be approved in a run.
fn needs(run: &PlayedRun) -> Vec<Need<'_>> {
    let units = units(run);
    let needs = units.iter().enumerate().flat_map(|(number, unit)| {
        unit.texts.iter().map(move |text| {
            let shown = run.happened[..unit.at].iter().filter_map(|happened| match happened {
                Happened::Answered { at, shown, .. } => shows_text(shown, text, unit).then_some(*at),
                Happened::Paid(_) => None,
            });
            Need { unit: number, node: unit.node, answers: shown.collect() }
        })
    });
    needs.collect()
}

/// Returns a run that goes wrong.
pub(super) fn wrong(runs: &[PlayedRun]) -> Option<&PlayedRun> {
    let needs = runs.iter().map(needs).collect();
    let mut judge = Judge { runs, needs, refusing: BTreeSet::new() };
    let mut open: BTreeMap<Question<'_>, usize> = BTreeMap::new();
    for (run, needs) in runs.iter().zip(&judge.needs) {
        for need in needs {
            open.extend(need.answers.iter().map(|&at| ((&run.tape[..at], need.node), run.answers_at(at))));
        }
    }
    loop {
        let mut more = Vec::new();
        for (&question, &answers) in &open {
            if (0..answers).any(|answer| judge.refuses(question, answer)) {
                more.push(question);
            }
        }
        if more.is_empty() {
            return (0..runs.len()).find(|&run| !judge.is_matched(run)).map(|run| &runs[run]);
        }
        open.retain(|question, _| !more.contains(question));
        judge.refusing.extend(more);
    }
}

/// The runs of a graph, and the questions that an answer refuses.
struct Judge<'r> {
    runs: &'r [PlayedRun],
    needs: Vec<Vec<Need<'r>>>,
    refusing: BTreeSet<Question<'r>>,
}

impl<'r> Judge<'r> {
    /// Whether the calls of a run can be matched.
    fn is_matched(&self, run: usize) -> bool {
        let tape = &self.runs[run].tape;
        let may_use = |at: usize, node: &str| self.refusing.contains(&(&tape[..at], node));
        can_serve(&self.needs[run], &may_use, &mut BTreeMap::new())
    }

    /// Whether an answer refuses. No call is matched to the question yet.
    fn refuses(&self, question: Question<'r>, answer: usize) -> bool {
        let (before, node) = question;
        let at = before.len();
        let mut after = (0..self.runs.len()).filter(|&run| {
            let tape = &self.runs[run].tape;
            tape.starts_with(before) && tape.get(at) == Some(&answer)
        });
        let comes = |run: usize| self.needs[run].iter().any(|need| need.node == node && need.answers.contains(&at));
        after.all(|run| !comes(run) || self.is_matched(run))
    }
}

/// Whether each need can have an answer that it may use, and no answer serves two calls.
fn can_serve(needs: &[Need<'_>], may_use: &dyn Fn(usize, &str) -> bool, taken: &mut BTreeMap<usize, usize>) -> bool {
    let Some((need, rest)) = needs.split_first() else { return true };
    for &answer in need.answers.iter().rev().filter(|&&answer| may_use(answer, need.node)) {
        match taken.get(&answer) {
            Some(unit) if *unit == need.unit => {
                if can_serve(rest, may_use, taken) {
                    return true;
                }
            }
            Some(_) => {}
            None => {
                taken.insert(answer, need.unit);
                if can_serve(rest, may_use, taken) {
                    return true;
                }
                taken.remove(&answer);
            }
        }
    }
    false
}

/// Returns a run in which questions about one text are answered, as the tape says, and then nodes make a call with it.
fn asked_and_paid(tape: &[usize], nodes: &[&str]) -> PlayedRun {
    let shown = vec![json!("input v")];
    let answered = (0..tape.len()).map(|at| Happened::Answered { at, answers: 2, shown: shown.clone() });
    let paid = nodes.iter().zip(10..).map(|(node, step)| {
        Happened::Paid(Paid {
            node: (*node).to_owned(),
            visit: (step, None),
            texts: BTreeSet::from(["input v".to_owned()]),
            key: step.to_string(),
            has_own: false,
        })
    });
    PlayedRun { tape: tape.to_vec(), happened: answered.chain(paid).collect() }
}

#[test]
fn the_judge_matches_each_call_to_an_answer_of_its_own() {
    for (is_fine, played) in [
        (true, vec![(&[0][..], &["c"][..]), (&[1], &[])]),
        // Each answer leads to the call.
        (false, vec![(&[0], &["c"]), (&[1], &["c"])]),
        // One answer, and two calls.
        (false, vec![(&[0], &["c", "d"]), (&[1], &[])]),
        (false, vec![(&[0], &["c", "c"]), (&[1], &[])]),
        // Two answers for two calls, which both questions may approve.
        (true, vec![(&[0, 0], &["c", "d"]), (&[0, 1], &[]), (&[1], &[])]),
        // The first answer decides about one of them, whatever the second is.
        (true, vec![(&[0, 0], &["c", "d"]), (&[0, 1], &["d"]), (&[1], &[])]),
        (false, vec![(&[0, 0], &["c", "d"]), (&[0, 1], &["c", "d"]), (&[1], &[])]),
        // Each answer refuses one of the calls.
        (true, vec![(&[0], &["c"]), (&[1], &["d"])]),
        // A refusal leads to another question, which decides or not.
        (true, vec![(&[0], &["c"]), (&[1, 0], &["c"]), (&[1, 1], &[])]),
        (false, vec![(&[0], &["c"]), (&[1, 0], &["c"]), (&[1, 1], &["c"])]),
    ] {
        let runs: Vec<PlayedRun> = played.iter().map(|(tape, nodes)| asked_and_paid(tape, nodes)).collect();
        assert_eq!(wrong(&runs).is_none(), is_fine, "{played:?}");
    }
}
