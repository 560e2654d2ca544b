//! The parts of which random graphs are made. Each leads to a given node, and returns its first node.

use super::{AGENT, ANSWER, INNER, Kind, List, RESULTS, Route, SIGNAL, Text, Word, Writer};

impl Writer {
    /// Writes a part that leads to `next`, and returns its first node.
    pub(super) fn part(&mut self, size: usize, next: &str) -> String {
        if size == 0 {
            return match self.below(14) {
                0..=2 => self.writes(next),
                3..=6 => self.call(next),
                7 => self.each(next),
                8 => self.proof(next),
                9 => self.wait(next),
                10 => self.ask(next),
                11 => self.inner(next),
                12 => self.agent(next),
                _ => self.task(next),
            };
        }
        match self.below(12) {
            0..=2 => {
                let last = self.part(size - 1, next);
                self.part(size - 1, &last)
            }
            3 => self.either(size, next),
            4 => self.by_word(size, next),
            5..=7 => self.branches(size, next),
            8 | 9 => self.over(size, next),
            10 => self.rounds(size, next),
            _ => self.part(0, next),
        }
    }

    /// A gate that writes.
    fn writes(&mut self, next: &str) -> String {
        let assign = self.assign(&[]);
        self.node((&format!("type: gate{assign}"), Route::to(next)), ("type: gate", Route::to(next)))
    }

    /// Returns the node to which a failure leads, if there is one.
    fn on_error(&mut self, next: &str, route: Route) -> Route {
        match self.below(3) {
            0 => {
                let failed = self.writes(next);
                route.and("on_error", &failed)
            }
            _ => route,
        }
    }

    /// The field by which a call fails by chance. Where nothing handles a failure, few calls fail.
    fn fails(&mut self, route: &Route) -> &'static str {
        let many = if route.text.contains("on_error") { 2 } else { 10 };
        if self.one_in(many) { ", fails: true" } else { "" }
    }

    /// Returns a call of a tool, with a parameter that needs a value.
    fn action(&mut self, elements: &[String], fails: &str) -> (String, String) {
        let (tool, kind, careful) = match self.below(8) {
            0..=3 => ("text", Text, "x"),
            4 | 5 => ("word", Word, "light"),
            6 => ("list", List, "[]"),
            _ => match self.below(2) {
                0 => ("number", Kind::Number, "1"),
                _ => ("object", Kind::Object, "{ a: x }"),
            },
        };
        let value = match elements {
            [element, ..] if kind == Text => format!("\"${{{element}}}\""),
            _ => self.value(kind, &[]),
        };
        let call = |value: &str| format!("action: {{ item_id: t/{tool}, params: {{ v: {value}{fails} }} }}");
        (call(&value), call(careful))
    }

    fn call(&mut self, next: &str) -> String {
        let (yes, no) = self.ways(next);
        let route = self.routed(&RESULTS, &yes, &no, "result.word", &["light", "heavy"]);
        let plain = Route::by_input(&[&yes, &no]);
        let (route, plain) = match self.one_in(3) {
            true => {
                let failed = self.writes(next);
                (route.and("on_error", &failed), plain.and("on_error", &failed))
            }
            false => (route, plain),
        };
        let fails = self.fails(&route);
        let (daring, careful) = self.action(&[], fails);
        let assign = self.assign(&RESULTS);
        self.node((&format!("{daring}{assign}"), route), (&careful, plain))
    }

    /// Returns two nodes that lead to `next`, or `next` itself; often both are the same.
    fn ways(&mut self, next: &str) -> (String, String) {
        match self.below(4) {
            0 => (self.reader(next), next.to_owned()),
            1 => {
                let reader = self.reader(next);
                (reader, self.end(next))
            }
            _ => (next.to_owned(), next.to_owned()),
        }
    }

    /// Returns a node that ends the run, or `next`.
    fn end(&mut self, next: &str) -> String {
        if self.one_in(6) { "cut".to_owned() } else { next.to_owned() }
    }

    /// A call that reads a value.
    fn reader(&mut self, next: &str) -> String {
        let (daring, careful) = self.action(&[], "");
        self.node((&daring, Route::to(next)), (&careful, Route::to(next)))
    }

    /// Returns a route that looks at the result of its node: at a word, or at anything else.
    fn routed(&mut self, results: &[(&str, Kind)], yes: &str, no: &str, word: &str, words: &[&str]) -> Route {
        if yes == no && !self.one_in(5) {
            return Route::to(yes);
        }
        match self.below(4) {
            0 => {
                let targets: Vec<String> = words
                    .iter()
                    .enumerate()
                    .map(|(at, word)| format!("{word}: {}", if at == 0 { yes } else { no }))
                    .collect();
                Route::of(&format!("{{ by: {word}, to: {{ {} }} }}", targets.join(", ")), &[yes, no])
            }
            1 => {
                let last = self.one(words);
                Route::of(
                    &format!("[{{ to: {no}, when: {{ path: {word}, value: {last} }} }}, {{ to: {yes} }}]"),
                    &[yes, no],
                )
            }
            2 => {
                let first = self.one(words);
                Route::of(
                    &format!("[{{ to: {yes}, when: {{ path: {word}, value: {first} }} }}, {{ to: {no} }}]"),
                    &[yes, no],
                )
            }
            _ => {
                let when = self.condition(results, 1);
                Route::of(&format!("[{{ to: {yes}, when: {when} }}, {{ to: {no} }}]"), &[yes, no])
            }
        }
    }

    /// A foreach.
    fn each(&mut self, next: &str) -> String {
        let (list, item) = match self.below(4) {
            0 => ("inputs.things".to_owned(), "item.a".to_owned()),
            _ => (self.path(List, &[]), "item".to_owned()),
        };
        let list = if self.one_in(6) { "[x, z]".to_owned() } else { format!("\"${{{list}}}\"") };
        let item = if list == "[x, z]" { "item".to_owned() } else { item };
        let plain = Route::to(next);
        let route = self.on_error(next, plain);
        let fails = self.fails(&route);
        let (daring, careful) = self.action(&[item], fails);
        let parallel = if self.one_in(2) { ", parallel: true" } else { "" };
        let collect = if self.one_in(3) { "" } else { ", collect: got" };
        let front = |list: &str, action: &str| format!("type: foreach, over: {list}, {action}{parallel}");
        self.node(
            (&format!("{}{collect}", front(&list, &daring)), route.clone()),
            (&front("\"${inputs.l}\"", &careful), route),
        )
    }

    /// A condition before a node that reads.
    fn proof(&mut self, next: &str) -> String {
        let kind = [Text, Text, Word, List][self.below(4)];
        let path = self.path(kind, &[]);
        let (tool, careful) = match kind {
            Text => ("text", "x"),
            Word => ("word", "light"),
            _ => ("list", "[]"),
        };
        let call = |value: &str| format!("action: {{ item_id: t/{tool}, params: {{ v: {value} }} }}");
        let reads = self.node((&call(&format!("\"${{{path}}}\"")), Route::to(next)), (&call(careful), Route::to(next)));
        // Something may come between the two.
        let reads = if self.one_in(3) { self.part(0, &reads) } else { reads };
        let other = match self.below(3) {
            0 => self.writes(next),
            _ => self.end(next),
        };
        let test = match self.below(5) {
            0 | 1 => format!("{{ path: {path}, op: exists }}"),
            2 => format!("{{ not: {{ path: {path}, value: null }} }}"),
            3 => format!("{{ all: [{}, {{ path: {path}, op: exists }}] }}", self.condition(&[], 0)),
            _ => format!("{{ any: [{{ path: {path}, op: exists }}, {}] }}", self.condition(&[], 0)),
        };
        let text = match self.below(3) {
            0 => format!("[{{ to: {other}, when: {{ not: {test} }} }}, {{ to: {reads} }}]"),
            _ => format!("[{{ to: {reads}, when: {test} }}, {{ to: {other} }}]"),
        };
        self.node(
            ("type: gate", Route::of(&text, &[&reads, &other])),
            ("type: gate", Route::by_input(&[&reads, &other])),
        )
    }

    /// A wait for signals, or for a time.
    fn wait(&mut self, next: &str) -> String {
        self.needs_store = true;
        if self.one_in(5) {
            let assign = self.assign(&[]);
            return self.node(
                (&format!("type: wait, timeout: 2h{assign}"), Route::to(next)),
                ("type: wait, timeout: 2h", Route::to(next)),
            );
        }
        let (yes, no) = self.ways(next);
        let signals = self.one(&["[paid, gone]", "[paid, gone]", "[paid]"]);
        let words: &[&str] = if signals == "[paid]" { &["paid"] } else { &["paid", "gone"] };
        let (mut route, mut plain) =
            (self.routed(&SIGNAL, &yes, &no, "result.signal", words), Route::by_input(&[&yes, &no]));
        let mut time = "";
        if self.one_in(2) {
            let late = self.writes(next);
            (route, plain) = (route.and("on_timeout", &late), plain.and("on_timeout", &late));
            time = ", timeout: 2h";
        }
        let assign = self.assign(&SIGNAL);
        let front = format!("type: wait, signals: {signals}{time}");
        self.node((&format!("{front}{assign}"), route), (&front, plain))
    }

    /// A question to people.
    fn ask(&mut self, next: &str) -> String {
        self.needs_store = true;
        let (yes, no) = self.ways(next);
        let late = self.writes(next);
        let route = self.routed(&ANSWER, &yes, &no, "result.decision", &["light", "heavy"]).and("on_timeout", &late);
        let plain = Route::by_input(&[&yes, &no]).and("on_timeout", &late);
        let front = |payload: &str| {
            format!(
                "type: interrupt, payload: {{ v: {payload} }}, timeout: 2h, result_schema: {{ type: object, properties: \
                 {{ decision: {{ enum: [light, heavy] }}, note: {{ type: string }}, list: {{ type: array, items: {{ type: string }} }} }}, \
                 required: [decision] }}"
            )
        };
        let (payload, assign) = (self.value(Text, &[]), self.assign(&ANSWER));
        self.node((&format!("{}{assign}", front(&payload)), route), (&front("x"), plain))
    }

    /// A graph inside. One of them waits.
    fn inner(&mut self, next: &str) -> String {
        let (yes, no) = self.ways(next);
        let id = self.one(&["v/inner", "v/inner", "v/asks"]);
        self.needs_store |= id == "v/asks";
        let route = match self.below(4) {
            0 => Route::of(
                &format!("[{{ to: {yes}, when: {{ path: result.output.ok, value: true }} }}, {{ to: {no} }}]"),
                &[&yes, &no],
            ),
            1 => Route::of(
                &format!("[{{ to: {yes}, when: {{ path: result.output.more, op: exists }} }}, {{ to: {no} }}]"),
                &[&yes, &no],
            ),
            _ => self.routed(&INNER, &yes, &no, "result.output.kind", &["light", "heavy", "other"]),
        };
        let assign = self.assign(&INNER);
        let value = self.one(&["\"${inputs.m}\"", "\"${inputs.m}\"", "a", "c"]);
        let front = |value: &str| format!("action: {{ item_id: {id}, params: {{ m: {value} }} }}");
        self.node(
            (&format!("{}{assign}", front(value)), route),
            (&front("\"${inputs.m}\""), Route::by_input(&[&yes, &no])),
        )
    }

    /// An agent.
    fn agent(&mut self, next: &str) -> String {
        let (yes, no) = self.ways(next);
        let mut route = self.routed(&AGENT, &yes, &no, "result.output.verdict", &["light", "heavy"]);
        let mut plain = Route::by_input(&[&yes, &no]);
        if self.one_in(2) {
            let failed = self.writes(next);
            (route, plain) = (route.and("on_error", &failed), plain.and("on_error", &failed));
        }
        let (fails, value, assign) = (self.fails(&route), self.value(Text, &[]), self.assign(&AGENT));
        let front = |value: &str| format!("action: {{ item_id: v/agent, params: {{ v: {value}{fails} }} }}");
        self.node((&format!("{}{assign}", front(&value)), route), (&front("x"), plain))
    }

    /// A task, and the node that waits for it.
    fn task(&mut self, next: &str) -> String {
        self.needs_store = true;
        self.count += 1;
        let key = format!("task{}", self.count);
        let waits = |tasks: &str| format!("action: {{ item_id: rye/orchestrate/await, params: {{ tasks: {tasks} }} }}");
        let results = [("result.tasks.0.status", Text), ("result.tasks.0.id", Text), ("result.tasks.0.failure", Text)];
        let assign = self.assign(&results);
        let last = self.node(
            (&format!("{}{assign}", waits(&format!("[\"${{state.{key}}}\"]"))), Route::to(next)),
            (&waits("[]"), Route::to(next)),
        );
        let between = if self.one_in(2) { self.part(0, &last) } else { last };
        let target = self.one(&["v/inner", "t/text", "v/agent"]);
        let begins = |inputs: &str| {
            format!(
                "action: {{ item_id: rye/orchestrate/spawn, params: {{ target: {target}, inputs: {{ {inputs} }} }} }}"
            )
        };
        let assign = format!(", assign: {{ {key}: \"${{result.task}}\" }}");
        let (value, careful) = match target {
            "v/inner" => ("m: \"${inputs.m}\"".to_owned(), "m: a"),
            _ => (format!("v: {}", self.value(Text, &[])), "v: x"),
        };
        let daring = format!("{}{assign}", begins(&value));
        self.node((&daring, Route::to(&between)), (&begins(careful), Route::to(&between)))
    }

    /// Two ways, by a condition.
    fn either(&mut self, size: usize, next: &str) -> String {
        let one = self.part(size - 1, next);
        let other = if self.one_in(3) { self.end(next) } else { self.part(size - 1, next) };
        let when = self.condition(&[], 2);
        let text = format!("[{{ to: {one}, when: {when} }}, {{ to: {other} }}]");
        let assign = self.assign(&[]);
        self.node(
            (&format!("type: gate{assign}"), Route::of(&text, &[&one, &other])),
            ("type: gate", Route::by_input(&[&one, &other])),
        )
    }

    /// Two ways, by a word.
    fn by_word(&mut self, size: usize, next: &str) -> String {
        let (one, other) = (self.part(size - 1, next), self.part(size - 1, next));
        let (path, words) = (self.path(Word, &[]), self.one(&["", "", "other", "\"null\""]));
        let more = if words.is_empty() { String::new() } else { format!(", {words}: {other}") };
        let text = format!("{{ by: {path}, to: {{ light: {one}, heavy: {other}{more} }} }}");
        self.node(("type: gate", Route::of(&text, &[&one, &other])), ("type: gate", Route::by_input(&[&one, &other])))
    }

    /// Adds a join that leads to `next`, and returns its name.
    fn join(&mut self, next: &str, branches: usize) -> String {
        let name = self.name();
        let assign = if self.one_in(3) { self.assign(&[]) } else { String::new() };
        let careful = ("type: gate, waits_for: [JOIN]".to_owned(), Route::to(next));
        if self.one_in(2) {
            let daring = format!("type: gate{assign}, waits_for: [JOIN]");
            return self.named(name, (&daring, Route::to(next)), (&careful.0, careful.1));
        }
        let (need, rest) = (1 + self.below(branches), self.one(&["cancel", "finish"]));
        let (mut fewer, mut to) = (String::new(), vec![next.to_owned()]);
        if self.one_in(2) {
            let other = self.writes(next);
            fewer = format!(", fewer: {other}");
            to.push(other);
        }
        let daring = format!("type: gate{assign}, waits_for: {{ of: [JOIN], need: {need}, rest: {rest}{fewer} }}");
        let route = Route { to: to.clone(), ..Route::to(next) };
        // The node of `fewer` must be reached without a quorum, too.
        let safe = match to.as_slice() {
            [_, other] => Route::by_input(&[next, other]),
            _ => Route::to(next),
        };
        self.named(name, (&daring, route), (&careful.0, safe))
    }

    /// Branches that meet at a join.
    fn branches(&mut self, size: usize, next: &str) -> String {
        let count = 2 + self.below(2);
        let join = self.join(next, count);
        let starts: Vec<String> = (0..count).map(|_| self.branch(size - 1, &join)).collect();
        let mut edges = Vec::new();
        for start in &starts {
            let when = if self.one_in(5) { format!(", when: {}", self.condition(&[], 1)) } else { String::new() };
            edges.push(format!("{{ to: {start}{when} }}"));
        }
        let to: Vec<&str> = starts.iter().map(String::as_str).collect();
        let plain: Vec<String> = starts.iter().map(|start| format!("{{ to: {start} }}")).collect();
        let fails = self.one(&["", "", "", ", on_branch_error: collect", ", on_branch_error: finish"]);
        let route =
            |edges: &[String], fails: &str| Route::of(&format!("{{ all: [{}]{fails} }}", edges.join(", ")), &to);
        let assign = if self.one_in(3) { self.assign(&[]) } else { String::new() };
        self.node((&format!("type: gate{assign}"), route(&edges, fails)), ("type: gate", route(&plain, "")))
    }

    /// Returns the first node of a branch that leads to a join. It is no join itself, and no two branches begin with one node.
    fn branch(&mut self, size: usize, join: &str) -> String {
        let last = if self.one_in(2) { self.reader(join) } else { self.writes(join) };
        if self.one_in(3) { last } else { self.part(size, &last) }
    }

    /// A branch for each element of a list.
    fn over(&mut self, size: usize, next: &str) -> String {
        let join = self.join(next, 2);
        let name = format!("e{}", self.count);
        let (list, element) = match self.below(5) {
            0 => ("[x, z]".to_owned(), name.clone()),
            1 => ("\"${inputs.things}\"".to_owned(), format!("{name}.{}", self.one(&["a", "a", "b"]))),
            2 => ("\"${inputs.some}\"".to_owned(), name.clone()),
            _ => (format!("\"${{{}}}\"", self.path(List, &[])), name.clone()),
        };
        self.elements.push(element);
        let start = self.branch(size - 1, &join);
        self.elements.pop();
        let fails = self.one(&["", "", ", on_branch_error: collect"]);
        let route = |list: &str| Route::of(&format!("{{ over: {list}, as: {name}, to: {start}{fails} }}"), &[&start]);
        self.node(("type: gate", route(&list)), ("type: gate", route("\"${inputs.l}\"")))
    }

    /// A loop.
    fn rounds(&mut self, size: usize, next: &str) -> String {
        let tail = self.name();
        let start = self.part(size - 1, &tail);
        let rounds = 1 + self.below(3);
        let again = format!("{{ path: visit.number, op: lt, value: {} }}", rounds + 1);
        let when =
            if self.one_in(3) { format!("{{ all: [{again}, {}] }}", self.condition(&[], 0)) } else { again.clone() };
        let route =
            |when: &str| Route::of(&format!("[{{ to: {start}, when: {when} }}, {{ to: {next} }}]"), &[&start, next]);
        let assign = self.assign(&[]);
        self.named(tail, (&format!("type: gate{assign}"), route(&when)), ("type: gate", route(&again)));
        start
    }
}
