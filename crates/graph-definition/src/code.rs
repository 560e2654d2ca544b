//! The codes of diagnostics, each with its explanation.

use std::fmt;

/// A kind of mistake.
#[derive(Clone, Copy)]
pub struct DiagnosticCode {
    /// `G` and four digits; never reused for another kind.
    pub id: &'static str,
    /// The kind in a few words.
    pub title: &'static str,
    /// An explanation of the kind, and how to correct it, in Markdown.
    pub explanation: &'static str,
    /// The level unless a setting changes it; `None` if it is always an error.
    ///
    /// A kind with a level is a lint: there is a graph to compile, but it probably does not do what its author meant. A
    /// mistake of any other kind leaves no graph that could be compiled.
    pub lint: Option<Level>,
}

/// The level of a lint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// It is not reported.
    Allow,
    /// It is a warning.
    Warn,
    /// It is an error.
    Deny,
}

impl Level {
    /// Every level with its spelling.
    pub const TABLE: [(Self, &'static str); 3] = [(Self::Allow, "allow"), (Self::Warn, "warn"), (Self::Deny, "deny")];

    /// Finds the level that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, spelling)| *spelling == name).map(|(level, _)| *level)
    }

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(level, _)| *level == self).map_or("", |(_, spelling)| spelling)
    }
}

impl PartialEq for DiagnosticCode {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for DiagnosticCode {}

impl fmt::Debug for DiagnosticCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl DiagnosticCode {
    /// Finds the code that is written `id`.
    pub fn named(id: &str) -> Option<Self> {
        ALL.iter().find(|code| code.id == id).copied()
    }

    /// Whether it is about the trust in a file, and not about the file's contents.
    pub fn is_of_trust(self) -> bool {
        ("G0010"..="G0016").contains(&self.id)
    }

    /// Returns the explanation in lines of at most `width` characters, for a lint followed by its level.
    pub fn text(self, width: usize) -> String {
        let mut text = wrapped(self.explanation, width);
        if let Some(level) = self.lint {
            text.push_str(&format!("\n\nA lint: `{}` where nothing else is set.", level.name()));
        }
        text
    }
}

/// Breaks a text into lines.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

macro_rules! codes {
    (@lint) => { None };
    (@lint $level:ident) => { Some(Level::$level) };
    ($($name:ident = $id:literal $(($level:ident))?, $title:literal, $explanation:literal;)*) => {
        $(
            #[doc = $title]
            pub const $name: DiagnosticCode =
                DiagnosticCode { id: $id, title: $title, explanation: $explanation, lint: codes!(@lint $($level)?) };
        )*

        /// Every code, in the order of the ids.
        pub const ALL: &[DiagnosticCode] = &[$($name),*];
    };
}

codes! {
    UNREADABLE = "G0001", "a file cannot be read",
        "The graph, a contract, a settings file or a directory of the tree is missing, is no file or no directory, or may not be read. \
         Only what is certainly not there counts as absent: what cannot be read may forbid what nothing else does, so nothing \
         in the tree compiles until it can be read. The path in `graph!` \
         and in `graph_compiler::build` is relative to the directory of the package's `Cargo.toml`.";
    TOO_LARGE = "G0002", "a file is too large",
        "A graph or contract has at most 4 MiB. A graph of a thousand nodes has about a quarter of one; split what is larger \
         into graphs of their own.";
    NOT_TEXT = "G0003", "a file is not UTF-8 text",
        "The file holds bytes that are no UTF-8. The message names the first of them and its line. Save the file as UTF-8.";
    EMPTY = "G0004", "a file is empty",
        "The file holds nothing but white space, or a graph or contract nothing but comments.";

    UNSIGNED = "G0010", "a file is not signed",
        "Every file that a graph is compiled from is signed: the graph itself, its tools' contracts, the trusted keys. The \
         signature is the very first line (only a `#!/…` line may stand above it). Review the file and sign it with \
         `graph sign FILE`.";
    ALTERED = "G0011", "a file was changed after it was signed",
        "The text below the signature line is not what was signed. If the change is meant, review it and sign the file again \
         with `graph sign FILE`; if it is not, restore the file.";
    UNTRUSTED = "G0012", "the signing key is not trusted",
        "The signature is made by a key that is not among the trusted keys of the tree, which are the signed `*.toml` files in \
         its `keys` directory. If you trust its owner, add the public key with `graph keys trust`.";
    REVOKED = "G0013", "the signing key was revoked",
        "The key's file carries `revoked_at`. Nothing that a revoked key signed is trusted, whatever time its signature \
         claims: that time is not covered by the signature. Have the file reviewed and signed with another key.";
    FORGED = "G0014", "the signature is not the key's",
        "The signature line names a trusted key, and the text is the one whose hash it carries, but the signature was not \
         made by that key. Somebody wrote the line by hand. Treat the file as hostile.";
    MALFORMED_SIGNATURE = "G0015", "the signature line is malformed",
        "The first line begins like a signature and is none. The form is \
         `# rye:signed:<time>:<hash>:<signature>:<fingerprint>`, with nothing behind it but an optional `|provider@user`. \
         `graph sign FILE` writes it again.";
    BAD_KEY_FILE = "G0016", "a trusted key's file is refused",
        "A `*.toml` file in the tree's `keys` directory is unsigned, was changed, is signed by a key that is not trusted, or \
         holds no Ed25519 public key. A tree with such a file does not compile, since what it is meant to trust is not clear. \
         Mend the file, write it again with `graph keys trust`, or remove it.";
    BAD_SETTINGS = "G0017", "a settings file that cannot be used",
        "`graphs.toml`, or `[package.metadata.graphs]` in `Cargo.toml`, sets the levels of lints: in the table `lints`, each code \
         with `\"allow\"`, `\"warn\"` or `\"deny\"`. Only lints have a level; every other code is always an error. Nothing below \
         such a file compiles until it is mended, since what was meant is not clear.";

    YAML = "G0020", "the text is not YAML",
        "The YAML parser cannot read the file. Tabs cannot indent; a `:` or `#` inside a plain text needs quotes.";
    YAML_FEATURE = "G0021", "a part of YAML that graphs do not use",
        "Graphs are written in a small part of YAML 1.2, so that every reader sees the same graph: no anchors, aliases, tags, \
         directives, merge keys, complex keys, and one document a file. Write the value out where it is needed.";
    DUPLICATE_KEY = "G0022", "a key stands twice",
        "A mapping has two keys with the same name. Some readers keep the first and some the last, so neither is right. \
         Remove or rename one.";
    AMBIGUOUS_SCALAR = "G0023", "a plain value that readers disagree on",
        "A value such as `yes`, `0777`, `1_000`, `0x1F`, `.inf`, `1e3`, `2026-11-23`, `12:30` or `=` is a boolean, a number, a \
         date or a text depending on who reads it: readers of YAML 1.1 and of 1.2 differ. Put it in quotes to make it a text, or write the number in plain decimal.";
    FORBIDDEN_CHARACTER = "G0024", "a character that must not be in a graph",
        "Control characters, characters that change the direction of text, and characters that nobody sees, as the space without \
         width, can make a file look other than it is. In a double-quoted text they can be written as an escape: `\"\\u202e\"`. \
         What forms an emoji, or joins the letters of a script that needs it, may stand where it does so. Names cannot have such \
         characters (`G0034`).";
    TOO_DEEP = "G0025", "nested too deeply, or too many values",
        "Values nest at most 64 levels deep, a file holds at most 500,000 of them, and a graph has at most 60,000 nodes, and a node \
         at most 1,000 edges.";
    TWO_READINGS = "G0026", "two YAML readers read the file differently",
        "The file was read with two independent YAML parsers, and they disagree. A signed file must have one meaning. Quote \
         the value that the message points at.";

    LOOK_ALIKE = "G0028"(Deny), "two names that look the same",
        "Two nodes, state keys or inputs have names that a reader cannot tell apart: a letter of one is a letter of another script \
         that looks like it, as the Cyrillic `о` and the Latin `o`, or a letter with a mark is one character here and two there. \
         What is reviewed is then not what runs. Rename one of them.";
    MORE = "G0029", "more mistakes than are shown",
        "Of one file, 100 diagnostics are shown: its first errors, and its first warnings where there are fewer errors. The others \
         are counted. Correct what is shown and check again.";

    SHAPE = "G0030", "a value of the wrong shape",
        "A mapping, list, text, number or boolean stands where another is needed. Nothing is converted: `\"3\"` is a text and \
         not a number.";
    UNKNOWN_FIELD = "G0031", "an unknown field",
        "The field is not part of the format at this place. Misspelt fields would otherwise do nothing, silently. A node may \
         carry `description` and `comment` for its readers.";
    MISSING_FIELD = "G0032", "a field is missing",
        "A field that is needed here is not there.";
    NOT_A_GRAPH = "G0033", "the file is not a graph",
        "A graph says `tool_type: graph` and `executor_id: rye/core/runtimes/state-graph/runtime`. Tools' contracts belong \
         into the tree's `tools` directory.";
    BAD_NAME = "G0034", "a name that cannot be used",
        "Names of nodes, state keys and inputs are texts whose characters can be seen, with plain spaces; item ids are segments of letters, digits, `_` and \
         `-` with slashes between them.";
    BAD_SCHEMA = "G0035", "a schema that cannot be used",
        "`config_schema` and `result_schema` are written in a part of JSON Schema: `type`, `properties`, `required`, `items`, \
         `additionalProperties`, `enum`, `default`, `title`, `description`, `examples`. The `config_schema` of a graph may say \
         more than types: `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`, `minLength`, `maxLength`, \
         `pattern`, `format`, `minItems`, `maxItems`, `uniqueItems`, `minProperties`, `maxProperties`, `const`; the runtime \
         checks that when a run starts. Other keywords would be ignored, so they are errors.";
    NOT_SUPPORTED = "G0036", "a part of the format that this version does not run",
        "The field is part of the state-graph format, and this version of the compiler does not support it. It is refused \
         rather than ignored.";
    INERT_FIELD = "G0037", "a field that does nothing here",
        "The field belongs elsewhere. A gate calls nothing, and a failure in it, as a comparison of values that do not compare, \
         ends the run; a return node ends the run too, so it assigns nothing and leads nowhere. A foreach collects its \
         results with `collect`, and waits for its calls. `max_concurrency` says how many calls a foreach with \
         `parallel: true` makes at a time. `op` and `value` belong to a `path`.";
    BAD_DURATION = "G0038", "a duration that cannot be read",
        "A duration is a number of seconds, or a text of numbers with their units: `250ms`, `30s`, `2m`, `1h30m`. It is at \
         least a millisecond.";

    TEMPLATE_AS_TEXT = "G0039", "a template where none is read",
        "`remote` and the keys of `assign` are taken as they are written: a template there would be a text that looks computed. \
         Write the name itself.";

    NO_START = "G0101", "the start node is missing or unknown",
        "`config.start` names the node where a run begins; it must be one of `config.nodes`.";
    UNKNOWN_TARGET = "G0102", "an edge leads to a node that does not exist",
        "`next` names a node that is not in `config.nodes`.";
    UNKNOWN_ERROR_TARGET = "G0103", "`on_error` leads to a node that does not exist",
        "A node's `on_error` names the node that a failure leads to; it must be one of `config.nodes`. The policies `fail` \
         and `continue` are set for the whole graph, in `config.on_error`.";
    UNREACHABLE = "G0104", "a node that no run can reach",
        "No way of `next` and `on_error` edges leads from the start to this node. Of nodes that only such nodes lead to, nothing is \
         said: they follow.";
    NO_END = "G0105", "a node that no run can leave",
        "From this node no way leads to an end: a return node, a node without `next`, or a list of edges none of which may \
         match. A run that comes here goes round until `max_steps` stops it.";
    SHADOWED_EDGE = "G0106", "an edge that is never followed",
        "The edges of a node are tried in order, and an edge without `when` always matches. Edges behind it are never tried.";

    BAD_TEMPLATE = "G0110", "a template that cannot be read",
        "Inside `${…}` stand paths, with `||` between them: `${state.name || inputs.name}`. There are no calculations and no \
         functions. To write the characters `${` themselves, double the dollar: `$${`.";
    UNKNOWN_NAMESPACE = "G0111", "a path that begins with nothing known",
        "A path begins with `state`, `inputs`, `result` or `visit`, or is `_now` or `_timestamp`; in the action of a foreach \
         also with the name of the item. What a hook looks at depends on its event. A shell variable in a command is \
         written `$NAME`, or `$${NAME}`.";
    UNKNOWN_OPERATOR = "G0112", "an unknown operator",
        "The operators are `eq`, `ne` (also `neq`), `gt`, `gte`, `lt`, `lte`, `in`, `contains`, `regex` and `exists`, in lower \
         case.";
    BAD_REGEX = "G0113", "a regular expression that cannot be used",
        "The pattern is not a regular expression as the `regex` crate reads them: it has no look-around and no \
         back-references, and matches in linear time.";
    UNKNOWN_INPUT = "G0114", "an input that the graph does not declare",
        "`inputs.NAME` is read, and `config_schema.properties` has no such name. Without `config_schema` any input may be \
         read.";
    UNKNOWN_KEY = "G0115", "a state key that nothing sets",
        "`state.NAME` is read, and no `assign` and no `config.state` sets it.";
    NO_RESULT = "G0116", "`result` where there is none",
        "`result` is what the node's own action returned. It can be read in `assign` and `next` of an action node, and \
         nowhere else: a foreach has many, and collects them in a state key.";
    UNKNOWN_FIELD_OF_VALUE = "G0117", "a path into nothing",
        "The type of the value is known, from the input schema or a tool's contract, and has no such part. At run time the \
         path would always be null.";
    NEVER_COMPARABLE = "G0118", "a comparison that can only fail",
        "The types of both sides are known, and the operator cannot compare them: a string is not `gt` a number, and `3` is \
         never equal to `\"3\"`.";
    BAD_CONDITION = "G0119", "a condition that cannot be read",
        "A condition is a comparison (`path`, `op`, `value`) or one of `any`, `all` and `not`, and only one of these.";

    UNKNOWN_PARAMETER = "G0120", "a parameter that the tool does not take",
        "The tool's contract has no parameter of this name.";
    MISSING_PARAMETER = "G0121", "a parameter that the tool needs",
        "The tool's contract lists the parameter in `required`, without a default, and the action does not give it. Such a parameter \
         is needed whatever its type is, unless the type says that null is allowed, as `[string, \"null\"]` does: null is the same as \
         nothing.";
    WRONG_TYPE = "G0122", "a value of the wrong type",
        "The tool's contract gives the parameter another type. A template that is one `${…}` and nothing else keeps the type \
         of what it reads; any text around it makes a string.";
    BAD_CONTRACT = "G0123", "a contract that cannot be used",
        "A tool's contract is a signed YAML file in the tree's `tools` directory, named after the tool's id: \
         `tools/rye/bash.yaml` for `rye/bash`, in the same case and with `.yaml`. It gives `tool_type: rust` (the program that embeds the graph performs it), \
         `tool_type: builtin` (the runtime does) or `tool_type: subprocess` (a program that `config` says how to start), \
         `config_schema` for its parameters and `result_schema` for what it returns.";
    RESERVED_KEY = "G0124", "a state key that the engine keeps",
        "`inputs` and keys that begin with `_` belong to the engine: `inputs` are the run's original inputs everywhere, also \
         after a resume.";
    NO_VISIT = "G0125", "`visit` where there is none",
        "`visit.number` tells how often the run has come to the node, and `visit.previous` what the node's last visit \
         returned, or null; of a foreach, what it collected. A gate returns nothing, nor can a node with `feedback: false` \
         see it; a return node is visited once.";
    BAD_VARIABLE = "G0126", "a name that an item cannot have",
        "`as` names the item of a foreach in the templates of its action. It must not hide a namespace, as `state`, nor be \
         the key that `collect` names.";
    NOT_A_LIST = "G0127", "a foreach goes over what is no list",
        "`over` is a list, or a template that is one `${…}` and yields one. Text around a template makes a text of it.";
    AMBIGUOUS_ITEM = "G0128", "an id that means two things",
        "An action executes the tool of a contract or another graph of the tree, and there are several of this id: a contract \
         and a graph, or two graphs, or two graphs that would become modules of the same name. Rename one of them.";

    UNKNOWN_TOOL = "G0129"(Warn), "a tool without contract whose name is near another's",
        "The action executes a tool of which the tree has no contract, so that nothing is known of it, and there is one that is \
         called nearly the same. If the other is meant, correct the name; if not, write a contract, which also makes the \
         parameters and the result typed.";

    NO_PERMISSIONS = "G0130", "the graph declares no permissions",
        "`permissions` lists the capabilities that the graph may use, as `rye.execute.tool.rye.bash` or with wildcards. A \
         graph without them could not call anything.";
    MISSING_PERMISSION = "G0131", "an action that the graph's permissions do not cover",
        "The action needs a capability that no pattern in `permissions` grants. A run would be denied it.";
    BAD_PERMISSION = "G0132", "a permission that grants nothing",
        "A permission is a capability pattern: it begins with `rye.`, as in `rye.execute.tool.rye.bash`, and may hold `*`, \
         `?` and `[…]`.";
    EXCESS_PERMISSION = "G0133"(Warn), "a permission that grants more than is needed",
        "The nodes and hooks of the graph, and the graphs inside it, need fewer capabilities than the pattern grants. What a \
         graph may do is what a mistake in it, or in a tool, can do: list the capabilities that it needs and no others.";

    MISSING_INSIDE = "G0134"(Deny), "a nested graph that needs more than is permitted",
        "A graph that runs inside another may do what both permit. The permissions of the outer one do not cover what the inner \
         one needs, so its run could not begin, and the node would fail. Add what is missing to the outer graph's permissions.";

    REFUSED_INPUT = "G0136", "an input that the nested graph refuses",
        "The graph that the action runs says with a rule, as `maxLength` or `minimum`, what its input must be, and the value that it \
         is given breaks the rule; or it is given an input of the outer graph whose own rules allow no value that fits both. Its run \
         could not begin, and the node would fail.";
    DENIED_ID = "G0137"(Warn), "a computed id that the permissions do not cover",
        "The `item_id` is computed of words of an `enum`, so all ids that it can be are known, and the graph's `permissions` do not \
         grant one of them. A run that computes that id is denied the call. Grant it, or take the word out of the `enum`.";
    REPEATED = "G0138"(Warn), "a list that names the same twice",
        "Each entry of `permissions`, of `env_requires`, of the list that `in` looks into, and of a retry's `on` counts once, so the second \
         of two that are the same does nothing. Remove it; or another was meant, and is missing.";
    NO_CONTRACT = "G0139"(Allow), "a tool without a contract",
        "The action executes a tool of which neither the tree nor the compiler has a contract, or one whose id is computed. Nothing is \
         known of it: not the types of its parameters and its result, not which of them become code, not which are secret. A tree \
         that sets this lint to `deny` notices a contract that was removed.";

    UNKNOWN_EVENT = "G0140", "a hook of an unknown event",
        "The events are `graph_started`, `after_step`, `error`, `limit` and `graph_completed`.";
    BAD_HOOK = "G0141", "a hook that would not do what it says",
        "A hook steers the run in one way. `retry` does something about `error` only, and `continue` about `limit` only. The \
         layer of a hook, which decides the order of graph's and runtime's hooks, cannot be chosen.";

    NOT_ALWAYS_SET = "G0150"(Deny), "a state key that is not set on every way",
        "On some ways to this place nothing has set the key, so it would be null there: one such way is shown. Give the key a \
         first value in `config.state` (`null`, where nothing is meant to be one), name something to fall back on \
         (`${state.price || inputs.price}`), or come here only where it is set: behind an edge with `op: exists`, or one that \
         compares the key. A key is set by `assign`, by `collect`, and by a first value; a failure that leads along `on_error` \
         leaves out what the node would have assigned.";
    NEVER_SET = "G0151"(Deny), "a state key that is set only later, or elsewhere",
        "Something sets the key, but not before this place: on no way to here. It would always be null. Set it earlier, or read \
         another key.";
    UNREAD = "G0152"(Warn), "a value that nothing reads",
        "The key is written, and on no way from here is it read before it is written again or the run ends. A return node \
         without `output`, and an end without a return node, return the whole state and so read every key.";
    WIDENED = "G0153"(Warn), "values of different types meet",
        "A state key, a list or a fallback holds values of types that have nothing in common, so nothing is known of it: what is \
         done with it is checked when the graph runs, no longer when it is compiled.";
    MAYBE_NOTHING = "G0154"(Deny), "a value that may be missing where one is needed",
        "The parameter, or an element or a field of it, is needed, and what it is given may be null: an input that need not be \
         given, a field that a result need not have, an element that a list may not have. Of `a || b` the last path decides. The \
         call would fail then. Name something to fall back on, make the \
         value needed where it comes from (`required` in the schema), or come here only where it is there: behind an edge with \
         `op: exists`.";

    MISSING_DOLLAR = "G0155"(Warn), "a template that is none",
        "A text holds a path as other languages write it, `{state.name}`, `{{ state.name }}`, `$state.name`, `<%= state.name %>`, or is \
         nothing but a path, so it stands there as it is. To have the value there, write `${state.name}`.";

    UNREAD_INPUT = "G0156"(Warn), "an input that nothing reads",
        "`config_schema` declares the input, and no template and no condition of the graph reads it. Who starts a run gives a value \
         that changes nothing. Read it, or remove it.";
    UNKNOWN_VARIABLE = "G0158"(Warn), "a command reads a variable that nothing sets",
        "A command of `rye/bash` sees `PATH`, `HOME`, `USER`, `SHELL`, `LANG`, `LC_ALL`, `LC_CTYPE`, `TERM`, `TMPDIR`, `TZ`, what \
         `env_requires` names, and `env`. It reads another variable, does not set it itself, and does not say with `${NAME:-…}` \
         what holds where it is not set: the shell puts nothing in its place.";

    UNCOVERED = "G0160"(Deny), "edges that leave a case open",
        "The values that the conditions look at are few: booleans, words of an `enum`. In one of the cases, which is shown, no \
         edge is followed, and the run ends there as if it had succeeded. Add an edge for the case, or a last edge without \
         `when`. One without `to` says that the run is to end; `on_no_match: fail` that it is a failure.";
    OPEN_CASE = "G0161"(Warn), "edges that may leave a case open",
        "There is a case, which is shown, in which no edge is followed: the run ends there as if it had succeeded. Add a last \
         edge without `when`. One without `to` says that the run is to end; `on_no_match: fail` that it is a failure.";
    NEVER_FOLLOWED = "G0162"(Deny), "an edge that can never be followed",
        "Its condition never holds, or wherever it holds an edge before it is followed. What it leads to never happens.";
    NEEDLESS_DEFAULT = "G0163"(Warn), "a last edge that is never followed",
        "The edges before it cover every case, so there is nothing left for the edge without `when`. Remove it, so that a case \
         which comes later is noticed; or one of the conditions says more than was meant.";
    ALWAYS_SAME = "G0164"(Warn), "a comparison that comes out the same whatever the value is",
        "By its type, and by what the ways to here say of it, the value can only be what is shown, and for all of that the \
         comparison comes out the same. Either it is not needed or it does not say what was meant.";
    VALUE_OF_EXISTS = "G0165"(Deny), "`exists` with a value",
        "`exists` asks whether there is something, whatever `value` says: with `value: false` too. To ask whether there is \
         nothing, compare with null: `{ path: state.key, value: null }`.";

    UNKNOWN_WORD = "G0166"(Deny), "a comparison with a word that the value never is",
        "What an event tells of a run, the status of a graph that was run, and the name of the node that failed are one of a few words, \
         or names of nodes. The value that it is compared with is none of them, so the comparison always comes out the same.";

    STUCK_LOOP = "G0170"(Deny), "a loop that does not end once it goes round",
        "The ways out of the loop look only at values that no node of the loop changes: inputs, keys that are written \
         elsewhere, and keys that get what they have, or the same input each time. What leads on round once leads on round always, until `max_steps` stops the run with an error. Let the loop \
         write what its way out looks at, or count the rounds: `visit.number` is how often the run has come to the node.";
    TOO_FEW_STEPS = "G0171"(Deny), "`max_steps` is too small",
        "Even the shortest way from `start` to an end visits more nodes than `max_steps` allows, so every run would fail. Where an \
         edge asks for a later visit with `visit.number`, the rounds until then count.";
    TOO_DEEP_GRAPHS = "G0172"(Deny), "graphs are nested deeper than `limits.depth` allows",
        "A run of the graph would fail where it begins the innermost one. Raise `limits.depth`, or nest fewer. A graph that runs \
         itself inside on every way, directly or through others, is too deep for any limit: let a condition lead past that.";
    ANY_TEXT = "G0173"(Warn), "a pattern that every text has, or none",
        "A `regex` or a `pattern` is looked for anywhere in the text. One that may be empty, as `.*` or `a?`, is found in every text, and \
         so is the empty text that `contains` looks for; one that asks for something before `^` or behind `$` is found in none. The \
         comparison tells no text from another. To match the whole text write `^…$`; to ask whether there is one, `op: exists`.";
    NO_EFFECT = "G0174"(Warn), "a setting of a node's calls that changes nothing",
        "With `attempts: 1` nothing is tried again, since the number counts the first attempt too, and the other fields of `retry` do \
         nothing. A `timeout` of a node that is longer than `limits.timeout` never passes: the run ends before. Write another value, or \
         remove it.";
    SAME_TARGET = "G0175"(Warn), "an edge that makes no difference",
        "Wherever the edge is followed, the edges behind it would lead to the same node without it. So its condition decides nothing: either \
         it is not needed, or one of the edges was to lead elsewhere. An edge with a `description` is taken to be meant.";
    INJECTION = "G0180"(Deny), "a value becomes a part of code",
        "A contract says of a parameter, with `x-sink`, that its text is read as code: by a shell, a database, a browser, or as \
         an address. A template there splices a value into the code, and whoever can choose the value can write code. Pass the \
         value where it stays one: a shell command's in `env`, a statement's in the list of bound parameters, a page's in a \
         field that is escaped, an address's in `query`. A command may also execute what it is given beside its text: `eval`, \
         arithmetic, an unquoted variable, an interpreter that reads stdin, variables such as `PATH` and `BASH_ENV`. `rye/exec` \
         starts a program with a list of arguments that no shell reads. Numbers, booleans, the time, and words of an `enum` that are made of \
         letters, digits and `_ . -` are no danger. Neither are texts of the graph itself, as the items of a foreach over a list that stands there \
         and an input with `const`; nor is an input of the graph that is declared with the same `x-sink`: who gives that input writes the code.";
    SECRET_IN_TEXT = "G0181", "a secret becomes a part of a text",
        "A template puts a secret into a text, and the whole text would have to be as secret as that. Pass the secret by itself. \
         Only where a parameter is secret too may a text be made around one, as `\"Bearer ${inputs.token}\"` is.";
    SECRET_REVEALED = "G0182", "a secret goes where it is none",
        "A value that `x-secret` marks, or that is made of one, is given to what is not marked. A tool, or a graph that is nested, \
         promises with `x-secret: true` at its parameter not to show it to anybody; without a contract nothing is promised. \
         Ids of items, and what hooks wish, are shown to everybody.";
    SECRET_COMPARED = "G0183", "a condition asks what a secret is",
        "The way that a run takes is written down and shown, so a comparison tells a part of the secret to whoever sees it. \
         Only whether there is one may be asked: `op: exists`, or `value: null`. What else must be known of it is for a tool to \
         say.";
    SECRET_IN_SIGHT = "G0184", "a secret stands in the file",
        "A default or `const` is the value of something that `x-secret` marks. Everybody who has the file has it. Give the value \
         when the run starts.";
    REFUSED_LITERAL = "G0185"(Deny), "a value that a built-in tool always refuses",
        "The value stands in the graph, and the tool takes none like it: a path that leads out of the directory, an address with a \
         password in it, a name that no variable can have, a time of nothing. Each run would fail there.";
    SECRET_WRITTEN = "G0188"(Warn), "a secret stands in the file, as a parameter",
        "A parameter that takes a secret is given a text of the graph: one that a contract marks with `x-secret`, an environment \
         variable or a header whose name says that it holds one. Everybody who has the file has it. Declare an input with \
         `x-secret: true`, and give the value when the run starts.";
    NOT_SECRET = "G0189"(Warn), "what is no secret is given where one is taken",
        "A contract says with `x-secret` that the parameter is a secret, and what it is given is not marked as one: it stands in the \
         journal, the state and the output like any other value. Mark the input, or the field of the result, that it comes from.";
    NOT_CACHED = "G0190", "a result that cannot be cached",
        "`cache_result: true` has what a call returned returned again where a node makes the same call. That is no use where there is \
         more to a call than what it returns, or where that depends on more than the call: not of a graph, whose nodes may say it \
         themselves; not of items, which are files that may change; not of an agent's thread. What has secrets in it is not kept.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sorted_and_unique() {
        let ids: Vec<&str> = ALL.iter().map(|code| code.id).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(ids, sorted);
        assert!(ids.iter().all(|id| id.len() == 5 && DiagnosticCode::named(id).is_some()));
    }
}
