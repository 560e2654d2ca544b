//! The graphs of `tests/engines/graphs`, compiled, with tools that answer as their scripts say.
//!
//! Written by `SIGN_FIXTURES=1 cargo test --test language engine_graphs`.

use graph_model::value::AsView;
use graph_runtime::graph;

use super::script::Stage;
use super::{Erased, erased};

graph!("tests/engines/graphs/approval_gate.yaml");
graph!("tests/engines/graphs/batch_chunk.yaml");
graph!("tests/engines/graphs/batch_import_with_a_report.yaml");
graph!("tests/engines/graphs/begins_at_entries.yaml");
graph!("tests/engines/graphs/begins_in_several_nodes.yaml");
graph!("tests/engines/graphs/begins_inside_of_branches.yaml");
graph!("tests/engines/graphs/branches_cancelled_by_a_return.yaml");
graph!("tests/engines/graphs/branches_check_an_order.yaml");
graph!("tests/engines/graphs/branches_end_with_failures.yaml");
graph!("tests/engines/graphs/branches_finish_before_a_failure.yaml");
graph!("tests/engines/graphs/branches_for_each_element.yaml");
graph!("tests/engines/graphs/branches_meet_before_the_others.yaml");
graph!("tests/engines/graphs/branches_meet_in_each_round.yaml");
graph!("tests/engines/graphs/branches_run_graphs.yaml");
graph!("tests/engines/graphs/branches_run_inside.yaml");
graph!("tests/engines/graphs/cancelled_between_steps.yaml");
graph!("tests/engines/graphs/cancelled_in_typed_steps.yaml");
graph!("tests/engines/graphs/channels_combine_branches.yaml");
graph!("tests/engines/graphs/channels_combined_by_the_program.yaml");
graph!("tests/engines/graphs/channels_hold_deep_values.yaml");
graph!("tests/engines/graphs/channels_in_the_order_of_branches.yaml");
graph!("tests/engines/graphs/channels_kept_for_a_while.yaml");
graph!("tests/engines/graphs/channels_of_any_kind.yaml");
graph!("tests/engines/graphs/critique_without_new_research.yaml");
graph!("tests/engines/graphs/environment_must_be_set.yaml");
graph!("tests/engines/graphs/environment_of_a_graph_inside.yaml");
graph!("tests/engines/graphs/errors_are_seen_by_the_edges.yaml");
graph!("tests/engines/graphs/errors_end_the_run.yaml");
graph!("tests/engines/graphs/errors_go_round_until_the_steps_run_out.yaml");
graph!("tests/engines/graphs/errors_lead_to_their_own_node.yaml");
graph!("tests/engines/graphs/fields_keep_their_order.yaml");
graph!("tests/engines/graphs/files_are_read_and_written.yaml");
graph!("tests/engines/graphs/flow_assigns_in_order.yaml");
graph!("tests/engines/graphs/flow_ends_where_nothing_follows.yaml");
graph!("tests/engines/graphs/flow_must_match.yaml");
graph!("tests/engines/graphs/foreach_beside_each_other.yaml");
graph!("tests/engines/graphs/foreach_collects_whatever_its_edges_do.yaml");
graph!("tests/engines/graphs/foreach_fails_with_its_first_item.yaml");
graph!("tests/engines/graphs/foreach_leads_to_its_own_node.yaml");
graph!("tests/engines/graphs/foreach_of_typed_calls.yaml");
graph!("tests/engines/graphs/foreach_one_after_the_other.yaml");
graph!("tests/engines/graphs/foreach_over_what_may_be_no_list.yaml");
graph!("tests/engines/graphs/foreach_tries_items_again.yaml");
graph!("tests/engines/graphs/greeting_child.yaml");
graph!("tests/engines/graphs/greeting_parent.yaml");
graph!("tests/engines/graphs/hooks_after_steps_may_stop.yaml");
graph!("tests/engines/graphs/hooks_look_things_up.yaml");
graph!("tests/engines/graphs/hooks_of_every_event.yaml");
graph!("tests/engines/graphs/hooks_see_what_a_tool_said.yaml");
graph!("tests/engines/graphs/hooks_that_a_tool_answers_for.yaml");
graph!("tests/engines/graphs/hooks_that_end_a_run_before_it_begins.yaml");
graph!("tests/engines/graphs/import_goes_on_after_failures.yaml");
graph!("tests/engines/graphs/inputs_follow_rules.yaml");
graph!("tests/engines/graphs/inputs_have_defaults_inside.yaml");
graph!("tests/engines/graphs/inputs_in_texts.yaml");
graph!("tests/engines/graphs/inputs_of_any_kind.yaml");
graph!("tests/engines/graphs/items_are_executed_and_signed.yaml");
graph!("tests/engines/graphs/items_are_fetched_and_found.yaml");
graph!("tests/engines/graphs/joins_that_cancel.yaml");
graph!("tests/engines/graphs/keys_shared_deeper.yaml");
graph!("tests/engines/graphs/keys_shared_inside.yaml");
graph!("tests/engines/graphs/keys_shared_with_graphs.yaml");
graph!("tests/engines/graphs/late_branches_are_cancelled.yaml");
graph!("tests/engines/graphs/late_branches_run_on.yaml");
graph!("tests/engines/graphs/limits_of_nested_steps.yaml");
graph!("tests/engines/graphs/limits_of_steps.yaml");
graph!("tests/engines/graphs/limits_of_steps_below.yaml");
graph!("tests/engines/graphs/limits_of_time.yaml");
graph!("tests/engines/graphs/limits_of_visits.yaml");
graph!("tests/engines/graphs/limits_of_visits_inside.yaml");
graph!("tests/engines/graphs/limits_raised_by_a_hook.yaml");
graph!("tests/engines/graphs/limits_return_what_there_is.yaml");
graph!("tests/engines/graphs/limits_return_with_a_flag.yaml");
graph!("tests/engines/graphs/map_reduce_words.yaml");
graph!("tests/engines/graphs/needed_without_a_type.yaml");
graph!("tests/engines/graphs/negotiation_loop.yaml");
graph!("tests/engines/graphs/nested_area.yaml");
graph!("tests/engines/graphs/nested_beside_each_other.yaml");
graph!("tests/engines/graphs/nested_that_fails.yaml");
graph!("tests/engines/graphs/nested_too_deep.yaml");
graph!("tests/engines/graphs/nested_with_less_permission.yaml");
graph!("tests/engines/graphs/nested_with_types.yaml");
graph!("tests/engines/graphs/nulls_where_defaults_are.yaml");
graph!("tests/engines/graphs/numbers_stay_what_they_are.yaml");
graph!("tests/engines/graphs/operators_on_any_value.yaml");
graph!("tests/engines/graphs/operators_on_typed_values.yaml");
graph!("tests/engines/graphs/order_is_paid_or_refused.yaml");
graph!("tests/engines/graphs/outputs_of_any_kind.yaml");
graph!("tests/engines/graphs/permissions_are_patterns.yaml");
graph!("tests/engines/graphs/poll_until_done.yaml");
graph!("tests/engines/graphs/results_may_be_kept.yaml");
graph!("tests/engines/graphs/retries_are_forgotten_in_a_loop.yaml");
graph!("tests/engines/graphs/retries_are_seen_after_success.yaml");
graph!("tests/engines/graphs/retry_after_any_failure.yaml");
graph!("tests/engines/graphs/retry_as_the_node_says.yaml");
graph!("tests/engines/graphs/retry_by_a_hook_in_place.yaml");
graph!("tests/engines/graphs/retry_by_the_control_tool.yaml");
graph!("tests/engines/graphs/retry_what_is_transient_by_itself.yaml");
graph!("tests/engines/graphs/retry_with_jitter.yaml");
graph!("tests/engines/graphs/routes_by_a_value.yaml");
graph!("tests/engines/graphs/rules_of_contracts.yaml");
graph!("tests/engines/graphs/saga_with_compensation.yaml");
graph!("tests/engines/graphs/scraper_pipeline.yaml");
graph!("tests/engines/graphs/secrets_are_kept.yaml");
graph!("tests/engines/graphs/secrets_in_channels.yaml");
graph!("tests/engines/graphs/secrets_of_a_nested_graph.yaml");
graph!("tests/engines/graphs/templates_fall_back.yaml");
graph!("tests/engines/graphs/templates_find_parts.yaml");
graph!("tests/engines/graphs/templates_keep_types_or_make_text.yaml");
graph!("tests/engines/graphs/templates_know_the_time.yaml");
graph!("tests/engines/graphs/templates_write_for_a_shell.yaml");
graph!("tests/engines/graphs/threads_are_told_their_parent.yaml");
graph!("tests/engines/graphs/threads_fan_out.yaml");
graph!("tests/engines/graphs/threads_go_on_in_others.yaml");
graph!("tests/engines/graphs/tools_are_programs.yaml");
graph!("tests/engines/graphs/tools_are_routed_by_name.yaml");
graph!("tests/engines/graphs/tools_denied_at_dispatch.yaml");
graph!("tests/engines/graphs/tools_on_a_remote.yaml");
graph!("tests/engines/graphs/tools_with_a_contract_are_typed.yaml");
graph!("tests/engines/graphs/tools_with_half_a_contract.yaml");
graph!("tests/engines/graphs/tools_without_contract_answer_in_envelopes.yaml");
graph!("tests/engines/graphs/types_join_over_all_ways.yaml");
graph!("tests/engines/graphs/types_of_lists_and_nulls.yaml");
graph!("tests/engines/graphs/values_nest_only_so_deep.yaml");
graph!("tests/engines/graphs/visits_look_back.yaml");
graph!("tests/engines/graphs/visits_look_back_at_what_was_collected.yaml");
graph!("tests/engines/graphs/visits_without_feedback.yaml");

super::all_machines! {
    "approval_gate" approval_gate ApprovalGate {
        approval_request;
        approval_status;
        approval_wait;
        deploy_run;
    }
    "batch_chunk" batch_chunk BatchChunk {
        import_row;
    }
    "batch_import_with_a_report" batch_import_with_a_report BatchImportWithAReport {
        import_report;
    }
    "begins_at_entries" begins_at_entries BeginsAtEntries {
        test_review;
        test_summary;
    }
    "begins_in_several_nodes" begins_in_several_nodes BeginsInSeveralNodes {
        test_again;
        test_announce;
        test_law;
        test_look;
        test_price;
        test_terms;
    }
    "begins_inside_of_branches" begins_inside_of_branches BeginsInsideOfBranches {
        test_check;
    }
    "branches_cancelled_by_a_return" branches_cancelled_by_a_return BranchesCancelledByAReturn {
        test_look;
        test_open;
        test_wait;
    }
    "branches_check_an_order" branches_check_an_order BranchesCheckAnOrder {
        test_law;
        test_price;
        test_stock;
    }
    "branches_end_with_failures" branches_end_with_failures BranchesEndWithFailures {
        test_decide;
        test_handled;
        test_list;
        test_more;
        test_must;
        test_try;
    }
    "branches_finish_before_a_failure" branches_finish_before_a_failure BranchesFinishBeforeAFailure {
        test_first;
        test_more;
        test_second;
        test_third;
        test_try;
    }
    "branches_for_each_element" branches_for_each_element BranchesForEachElement {
        test_note;
        test_pack;
        test_seal;
    }
    "branches_meet_before_the_others" branches_meet_before_the_others BranchesMeetBeforeTheOthers {
        test_law;
        test_part;
        test_price;
        test_stock;
    }
    "branches_meet_in_each_round" branches_meet_in_each_round BranchesMeetInEachRound {
        test_quote;
        test_quotes;
    }
    "branches_run_graphs" branches_run_graphs BranchesRunGraphs {
        test_check;
    }
    "branches_run_inside" branches_run_inside BranchesRunInside {
        test_one;
    }
    "cancelled_between_steps" cancelled_between_steps CancelledBetweenSteps {
        test_a;
        test_b;
        test_c;
    }
    "cancelled_in_typed_steps" cancelled_in_typed_steps CancelledInTypedSteps {
        math_area { width: "width", height: "height" };
    }
    "channels_combine_branches" channels_combine_branches ChannelsCombineBranches {
        test_measure;
        test_part;
    }
    "channels_combined_by_the_program" channels_combined_by_the_program ChannelsCombinedByTheProgram {
        test_number { value: "value", list: "list" };
    }
    "channels_hold_deep_values" channels_hold_deep_values ChannelsHoldDeepValues {
        test_deep;
    }
    "channels_in_the_order_of_branches" channels_in_the_order_of_branches ChannelsInTheOrderOfBranches {
        test_part;
    }
    "channels_kept_for_a_while" channels_kept_for_a_while ChannelsKeptForAWhile {
        test_number { value: "value", list: "list" };
    }
    "channels_of_any_kind" channels_of_any_kind ChannelsOfAnyKind {
        test_four;
        test_item;
        test_one;
        test_three;
        test_two;
    }
    "critique_without_new_research" critique_without_new_research CritiqueWithoutNewResearch {
        agent_critique;
        agent_research;
        agent_write;
    }
    "environment_must_be_set" environment_must_be_set EnvironmentMustBeSet {
        test_call;
    }
    "environment_of_a_graph_inside" environment_of_a_graph_inside EnvironmentOfAGraphInside {
        test_call;
    }
    "errors_are_seen_by_the_edges" errors_are_seen_by_the_edges ErrorsAreSeenByTheEdges {
        test_again;
        test_fetch;
    }
    "errors_end_the_run" errors_end_the_run ErrorsEndTheRun {
        test_one;
        test_two;
    }
    "errors_go_round_until_the_steps_run_out" errors_go_round_until_the_steps_run_out ErrorsGoRoundUntilTheStepsRunOut {
        test_try;
    }
    "errors_lead_to_their_own_node" errors_lead_to_their_own_node ErrorsLeadToTheirOwnNode {
        test_recover;
        test_risky;
    }
    "fields_keep_their_order" fields_keep_their_order FieldsKeepTheirOrder {
        test_order;
    }
    "files_are_read_and_written" files_are_read_and_written FilesAreReadAndWritten {
    }
    "flow_assigns_in_order" flow_assigns_in_order FlowAssignsInOrder {
        test_call;
    }
    "flow_ends_where_nothing_follows" flow_ends_where_nothing_follows FlowEndsWhereNothingFollows {
        test_call;
    }
    "flow_must_match" flow_must_match FlowMustMatch {
        test_call;
    }
    "foreach_beside_each_other" foreach_beside_each_other ForeachBesideEachOther {
        test_wait;
    }
    "foreach_collects_whatever_its_edges_do" foreach_collects_whatever_its_edges_do ForeachCollectsWhateverItsEdgesDo {
        test_do;
    }
    "foreach_fails_with_its_first_item" foreach_fails_with_its_first_item ForeachFailsWithItsFirstItem {
        test_do;
    }
    "foreach_leads_to_its_own_node" foreach_leads_to_its_own_node ForeachLeadsToItsOwnNode {
        test_do;
    }
    "foreach_of_typed_calls" foreach_of_typed_calls ForeachOfTypedCalls {
        shop_charge { card: "card", amount: "amount", currency: "currency", note: "note" };
    }
    "foreach_one_after_the_other" foreach_one_after_the_other ForeachOneAfterTheOther {
        test_job;
    }
    "foreach_over_what_may_be_no_list" foreach_over_what_may_be_no_list ForeachOverWhatMayBeNoList {
        test_do;
    }
    "foreach_tries_items_again" foreach_tries_items_again ForeachTriesItemsAgain {
        test_do;
    }
    "greeting_child" greeting_child GreetingChild {
        text_say;
    }
    "greeting_parent" greeting_parent GreetingParent {
    }
    "hooks_after_steps_may_stop" hooks_after_steps_may_stop HooksAfterStepsMayStop {
    }
    "hooks_look_things_up" hooks_look_things_up HooksLookThingsUp {
        test_call;
    }
    "hooks_of_every_event" hooks_of_every_event HooksOfEveryEvent {
        log_completed;
        log_error;
        log_limit;
        log_started;
        log_step;
        test_call;
    }
    "hooks_see_what_a_tool_said" hooks_see_what_a_tool_said HooksSeeWhatAToolSaid {
        guard_note;
        test_call;
    }
    "hooks_that_a_tool_answers_for" hooks_that_a_tool_answers_for HooksThatAToolAnswersFor {
        guard_decide;
        guard_second;
        test_call;
    }
    "hooks_that_end_a_run_before_it_begins" hooks_that_end_a_run_before_it_begins HooksThatEndARunBeforeItBegins {
        test_call;
    }
    "import_goes_on_after_failures" import_goes_on_after_failures ImportGoesOnAfterFailures {
        import_report;
        import_row;
    }
    "inputs_follow_rules" inputs_follow_rules InputsFollowRules {
    }
    "inputs_have_defaults_inside" inputs_have_defaults_inside InputsHaveDefaultsInside {
    }
    "inputs_in_texts" inputs_in_texts InputsInTexts {
    }
    "inputs_of_any_kind" inputs_of_any_kind InputsOfAnyKind {
    }
    "items_are_executed_and_signed" items_are_executed_and_signed ItemsAreExecutedAndSigned {
    }
    "items_are_fetched_and_found" items_are_fetched_and_found ItemsAreFetchedAndFound {
    }
    "joins_that_cancel" joins_that_cancel JoinsThatCancel {
        test_check;
    }
    "keys_shared_deeper" keys_shared_deeper KeysSharedDeeper {
        test_one;
    }
    "keys_shared_inside" keys_shared_inside KeysSharedInside {
        test_one;
    }
    "keys_shared_with_graphs" keys_shared_with_graphs KeysSharedWithGraphs {
    }
    "late_branches_are_cancelled" late_branches_are_cancelled LateBranchesAreCancelled {
        test_beside;
        test_checked;
        test_slower;
        test_slowest;
    }
    "late_branches_run_on" late_branches_run_on LateBranchesRunOn {
        test_checked;
        test_none;
        test_piece;
        test_quick;
        test_seal;
        test_second;
        test_slow;
        test_slower;
        test_slowest;
        test_third;
    }
    "limits_of_nested_steps" limits_of_nested_steps LimitsOfNestedSteps {
    }
    "limits_of_steps" limits_of_steps LimitsOfSteps {
    }
    "limits_of_steps_below" limits_of_steps_below LimitsOfStepsBelow {
    }
    "limits_of_time" limits_of_time LimitsOfTime {
        test_call;
        test_long;
        test_slow;
    }
    "limits_of_visits" limits_of_visits LimitsOfVisits {
    }
    "limits_of_visits_inside" limits_of_visits_inside LimitsOfVisitsInside {
    }
    "limits_raised_by_a_hook" limits_raised_by_a_hook LimitsRaisedByAHook {
    }
    "limits_return_what_there_is" limits_return_what_there_is LimitsReturnWhatThereIs {
        test_improve;
    }
    "limits_return_with_a_flag" limits_return_with_a_flag LimitsReturnWithAFlag {
        test_improve;
    }
    "map_reduce_words" map_reduce_words MapReduceWords {
        words_count;
        words_sum;
    }
    "needed_without_a_type" needed_without_a_type NeededWithoutAType {
        test_needs { value: "value", deep: "deep", word: "word" };
    }
    "negotiation_loop" negotiation_loop NegotiationLoop {
        side_buyer;
        side_seller;
    }
    "nested_area" nested_area NestedArea {
        math_area { width: "width", height: "height" };
    }
    "nested_beside_each_other" nested_beside_each_other NestedBesideEachOther {
    }
    "nested_that_fails" nested_that_fails NestedThatFails {
    }
    "nested_too_deep" nested_too_deep NestedTooDeep {
        test_level;
    }
    "nested_with_less_permission" nested_with_less_permission NestedWithLessPermission {
    }
    "nested_with_types" nested_with_types NestedWithTypes {
    }
    "nulls_where_defaults_are" nulls_where_defaults_are NullsWhereDefaultsAre {
        test_nullable { note: "note", q: "q" };
    }
    "numbers_stay_what_they_are" numbers_stay_what_they_are NumbersStayWhatTheyAre {
        test_number { value: "value", list: "list" };
    }
    "operators_on_any_value" operators_on_any_value OperatorsOnAnyValue {
    }
    "operators_on_typed_values" operators_on_typed_values OperatorsOnTypedValues {
    }
    "order_is_paid_or_refused" order_is_paid_or_refused OrderIsPaidOrRefused {
        shop_charge { card: "card", amount: "amount", currency: "currency", note: "note" };
        shop_look_up { article: "article" };
    }
    "outputs_of_any_kind" outputs_of_any_kind OutputsOfAnyKind {
    }
    "permissions_are_patterns" permissions_are_patterns PermissionsArePatterns {
        a_x;
        b_7;
        c_deep_down;
    }
    "poll_until_done" poll_until_done PollUntilDone {
        jobs_status;
        jobs_wait;
    }
    "results_may_be_kept" results_may_be_kept ResultsMayBeKept {
        test_row;
        test_typed { text: "text", count: "count", ratio: "ratio", flag: "flag", word: "word", list: "list", inner: "inner", map: "map", free: "free", any: "any" };
    }
    "retries_are_forgotten_in_a_loop" retries_are_forgotten_in_a_loop RetriesAreForgottenInALoop {
        test_call;
    }
    "retries_are_seen_after_success" retries_are_seen_after_success RetriesAreSeenAfterSuccess {
        test_call_api;
        test_tell;
    }
    "retry_after_any_failure" retry_after_any_failure RetryAfterAnyFailure {
        test_first;
        test_second;
        test_third;
    }
    "retry_as_the_node_says" retry_as_the_node_says RetryAsTheNodeSays {
        test_call;
    }
    "retry_by_a_hook_in_place" retry_by_a_hook_in_place RetryByAHookInPlace {
        test_call;
    }
    "retry_by_the_control_tool" retry_by_the_control_tool RetryByTheControlTool {
        test_call;
    }
    "retry_what_is_transient_by_itself" retry_what_is_transient_by_itself RetryWhatIsTransientByItself {
        test_call;
    }
    "retry_with_jitter" retry_with_jitter RetryWithJitter {
        test_call;
    }
    "routes_by_a_value" routes_by_a_value RoutesByAValue {
        test_any;
    }
    "rules_of_contracts" rules_of_contracts RulesOfContracts {
        shop_capped { cents: "cents", notes: "notes" };
    }
    "saga_with_compensation" saga_with_compensation SagaWithCompensation {
        trip_book;
        trip_cancel;
    }
    "scraper_pipeline" scraper_pipeline ScraperPipeline {
        scraper_analyse;
        scraper_done;
        scraper_fetch;
        scraper_parse;
        scraper_store;
    }
    "secrets_are_kept" secrets_are_kept SecretsAreKept {
        vault_ask { authorization: "authorization", anything: "anything", question: "question" };
        vault_login { user: "user", password: "password", pin: "pin" };
        vault_tell;
    }
    "secrets_in_channels" secrets_in_channels SecretsInChannels {
        vault_ask { authorization: "authorization", anything: "anything", question: "question" };
        vault_login { user: "user", password: "password", pin: "pin" };
    }
    "secrets_of_a_nested_graph" secrets_of_a_nested_graph SecretsOfANestedGraph {
        vault_ask { authorization: "authorization", anything: "anything", question: "question" };
    }
    "templates_fall_back" templates_fall_back TemplatesFallBack {
    }
    "templates_find_parts" templates_find_parts TemplatesFindParts {
    }
    "templates_keep_types_or_make_text" templates_keep_types_or_make_text TemplatesKeepTypesOrMakeText {
        test_echo;
    }
    "templates_know_the_time" templates_know_the_time TemplatesKnowTheTime {
        test_wait;
    }
    "templates_write_for_a_shell" templates_write_for_a_shell TemplatesWriteForAShell {
    }
    "threads_are_told_their_parent" threads_are_told_their_parent ThreadsAreToldTheirParent {
        rye_agent_threads_thread_directive;
    }
    "threads_fan_out" threads_fan_out ThreadsFanOut {
        collect_all;
        rye_agent_threads_thread_directive;
    }
    "threads_go_on_in_others" threads_go_on_in_others ThreadsGoOnInOthers {
        rye_agent_threads_thread_directive;
    }
    "tools_are_programs" tools_are_programs ToolsArePrograms {
    }
    "tools_are_routed_by_name" tools_are_routed_by_name ToolsAreRoutedByName {
        agent_choose;
    }
    "tools_denied_at_dispatch" tools_denied_at_dispatch ToolsDeniedAtDispatch {
    }
    "tools_on_a_remote" tools_on_a_remote ToolsOnARemote {
        test_work;
    }
    "tools_with_a_contract_are_typed" tools_with_a_contract_are_typed ToolsWithAContractAreTyped {
        test_typed { text: "text", count: "count", ratio: "ratio", flag: "flag", word: "word", list: "list", inner: "inner", map: "map", free: "free", any: "any" };
    }
    "tools_with_half_a_contract" tools_with_half_a_contract ToolsWithHalfAContract {
        test_loose { a: "a", b: "b" };
    }
    "tools_without_contract_answer_in_envelopes" tools_without_contract_answer_in_envelopes ToolsWithoutContractAnswerInEnvelopes {
        test_call;
    }
    "types_join_over_all_ways" types_join_over_all_ways TypesJoinOverAllWays {
    }
    "types_of_lists_and_nulls" types_of_lists_and_nulls TypesOfListsAndNulls {
        test_typed { text: "text", count: "count", ratio: "ratio", flag: "flag", word: "word", list: "list", inner: "inner", map: "map", free: "free", any: "any" };
    }
    "values_nest_only_so_deep" values_nest_only_so_deep ValuesNestOnlySoDeep {
    }
    "visits_look_back" visits_look_back VisitsLookBack {
        test_guess;
    }
    "visits_look_back_at_what_was_collected" visits_look_back_at_what_was_collected VisitsLookBackAtWhatWasCollected {
        test_do;
        test_single;
    }
    "visits_without_feedback" visits_without_feedback VisitsWithoutFeedback {
        test_a;
        test_b;
    }
}
