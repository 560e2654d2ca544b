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
        approval_request(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        approval_status(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        approval_wait(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        deploy_run(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "batch_chunk" batch_chunk BatchChunk {
        import_row(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "batch_import_with_a_report" batch_import_with_a_report BatchImportWithAReport {
        import_report(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "begins_at_entries" begins_at_entries BeginsAtEntries {
        test_review(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_summary(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "begins_in_several_nodes" begins_in_several_nodes BeginsInSeveralNodes {
        test_price(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_look(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_terms(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_law(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_again(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_announce(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "begins_inside_of_branches" begins_inside_of_branches BeginsInsideOfBranches {
        test_check(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_cancelled_by_a_return" branches_cancelled_by_a_return BranchesCancelledByAReturn {
        test_look(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_open(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_wait(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_check_an_order" branches_check_an_order BranchesCheckAnOrder {
        test_price(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_stock(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_law(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_end_with_failures" branches_end_with_failures BranchesEndWithFailures {
        test_list(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_try(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_more(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_decide(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_handled(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_must(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_finish_before_a_failure" branches_finish_before_a_failure BranchesFinishBeforeAFailure {
        test_try(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_more(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_first(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_second(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_third(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_for_each_element" branches_for_each_element BranchesForEachElement {
        test_note(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_pack(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_seal(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_meet_before_the_others" branches_meet_before_the_others BranchesMeetBeforeTheOthers {
        test_price(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_stock(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_law(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_part(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_meet_in_each_round" branches_meet_in_each_round BranchesMeetInEachRound {
        test_quotes(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_quote(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_run_graphs" branches_run_graphs BranchesRunGraphs {
        test_check(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "branches_run_inside" branches_run_inside BranchesRunInside {
        test_one(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "cancelled_between_steps" cancelled_between_steps CancelledBetweenSteps {
        test_a(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_b(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_c(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "cancelled_in_typed_steps" cancelled_in_typed_steps CancelledInTypedSteps {
        math_area(cancelled_in_typed_steps::MathArea { width: "width", height: "height" }) -> cancelled_in_typed_steps::MathAreaResult;
    }
    "channels_combine_branches" channels_combine_branches ChannelsCombineBranches {
        test_measure(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_part(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "channels_combined_by_the_program" channels_combined_by_the_program ChannelsCombinedByTheProgram {
        test_number(channels_combined_by_the_program::TestNumber { value: "value", list: "list" }) -> channels_combined_by_the_program::TestNumberResult;
    }
    "channels_hold_deep_values" channels_hold_deep_values ChannelsHoldDeepValues {
        test_deep(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "channels_in_the_order_of_branches" channels_in_the_order_of_branches ChannelsInTheOrderOfBranches {
        test_part(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "channels_kept_for_a_while" channels_kept_for_a_while ChannelsKeptForAWhile {
        test_number(channels_kept_for_a_while::TestNumber { value: "value", list: "list" }) -> channels_kept_for_a_while::TestNumberResult;
    }
    "channels_of_any_kind" channels_of_any_kind ChannelsOfAnyKind {
        test_one(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_two(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_three(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_four(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_item(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "critique_without_new_research" critique_without_new_research CritiqueWithoutNewResearch {
        agent_research(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        agent_write(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        agent_critique(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "environment_must_be_set" environment_must_be_set EnvironmentMustBeSet {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "environment_of_a_graph_inside" environment_of_a_graph_inside EnvironmentOfAGraphInside {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "errors_are_seen_by_the_edges" errors_are_seen_by_the_edges ErrorsAreSeenByTheEdges {
        test_fetch(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_again(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "errors_end_the_run" errors_end_the_run ErrorsEndTheRun {
        test_one(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_two(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "errors_go_round_until_the_steps_run_out" errors_go_round_until_the_steps_run_out ErrorsGoRoundUntilTheStepsRunOut {
        test_try(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "errors_lead_to_their_own_node" errors_lead_to_their_own_node ErrorsLeadToTheirOwnNode {
        test_risky(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_recover(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "fields_keep_their_order" fields_keep_their_order FieldsKeepTheirOrder {
        test_order(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "files_are_read_and_written" files_are_read_and_written FilesAreReadAndWritten {
    }
    "flow_assigns_in_order" flow_assigns_in_order FlowAssignsInOrder {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "flow_ends_where_nothing_follows" flow_ends_where_nothing_follows FlowEndsWhereNothingFollows {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "flow_must_match" flow_must_match FlowMustMatch {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "foreach_beside_each_other" foreach_beside_each_other ForeachBesideEachOther {
        test_wait(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "foreach_collects_whatever_its_edges_do" foreach_collects_whatever_its_edges_do ForeachCollectsWhateverItsEdgesDo {
        test_do(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "foreach_fails_with_its_first_item" foreach_fails_with_its_first_item ForeachFailsWithItsFirstItem {
        test_do(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "foreach_leads_to_its_own_node" foreach_leads_to_its_own_node ForeachLeadsToItsOwnNode {
        test_do(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "foreach_of_typed_calls" foreach_of_typed_calls ForeachOfTypedCalls {
        shop_charge(foreach_of_typed_calls::ShopCharge { card: "card", amount: "amount", currency: "currency", note: "note" }) -> foreach_of_typed_calls::ShopChargeResult;
    }
    "foreach_one_after_the_other" foreach_one_after_the_other ForeachOneAfterTheOther {
        test_job(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "foreach_over_what_may_be_no_list" foreach_over_what_may_be_no_list ForeachOverWhatMayBeNoList {
        test_do(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "foreach_tries_items_again" foreach_tries_items_again ForeachTriesItemsAgain {
        test_do(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "greeting_child" greeting_child GreetingChild {
        text_say(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "greeting_parent" greeting_parent GreetingParent {
    }
    "hooks_after_steps_may_stop" hooks_after_steps_may_stop HooksAfterStepsMayStop {
        rye_bash(hooks_after_steps_may_stop::RyeBash { command: "command", cwd: "cwd", env: "env", stdin: "stdin", timeout: "timeout", output_limit: "output_limit", ok_exit_codes: "ok_exit_codes" }) -> hooks_after_steps_may_stop::RyeBashResult;
    }
    "hooks_look_things_up" hooks_look_things_up HooksLookThingsUp {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "hooks_of_every_event" hooks_of_every_event HooksOfEveryEvent {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        log_started(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        log_step(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        log_error(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        log_limit(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        log_completed(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "hooks_see_what_a_tool_said" hooks_see_what_a_tool_said HooksSeeWhatAToolSaid {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        guard_note(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "hooks_that_a_tool_answers_for" hooks_that_a_tool_answers_for HooksThatAToolAnswersFor {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        guard_decide(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        guard_second(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "hooks_that_end_a_run_before_it_begins" hooks_that_end_a_run_before_it_begins HooksThatEndARunBeforeItBegins {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "import_goes_on_after_failures" import_goes_on_after_failures ImportGoesOnAfterFailures {
        import_row(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        import_report(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "inputs_follow_rules" inputs_follow_rules InputsFollowRules {
    }
    "inputs_have_defaults_inside" inputs_have_defaults_inside InputsHaveDefaultsInside {
    }
    "inputs_in_texts" inputs_in_texts InputsInTexts {
        dispatch(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "inputs_of_any_kind" inputs_of_any_kind InputsOfAnyKind {
    }
    "items_are_executed_and_signed" items_are_executed_and_signed ItemsAreExecutedAndSigned {
    }
    "items_are_fetched_and_found" items_are_fetched_and_found ItemsAreFetchedAndFound {
    }
    "joins_that_cancel" joins_that_cancel JoinsThatCancel {
        test_check(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "keys_shared_deeper" keys_shared_deeper KeysSharedDeeper {
        test_one(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "keys_shared_inside" keys_shared_inside KeysSharedInside {
        test_one(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "keys_shared_with_graphs" keys_shared_with_graphs KeysSharedWithGraphs {
    }
    "late_branches_are_cancelled" late_branches_are_cancelled LateBranchesAreCancelled {
        test_beside(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_slower(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_slowest(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_checked(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "late_branches_run_on" late_branches_run_on LateBranchesRunOn {
        test_piece(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_slow(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_slower(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_slowest(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_seal(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_quick(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_none(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_checked(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_second(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_third(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "limits_of_nested_steps" limits_of_nested_steps LimitsOfNestedSteps {
    }
    "limits_of_steps" limits_of_steps LimitsOfSteps {
    }
    "limits_of_steps_below" limits_of_steps_below LimitsOfStepsBelow {
    }
    "limits_of_time" limits_of_time LimitsOfTime {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_slow(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_long(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "limits_of_visits" limits_of_visits LimitsOfVisits {
    }
    "limits_of_visits_inside" limits_of_visits_inside LimitsOfVisitsInside {
    }
    "limits_raised_by_a_hook" limits_raised_by_a_hook LimitsRaisedByAHook {
    }
    "limits_return_what_there_is" limits_return_what_there_is LimitsReturnWhatThereIs {
        test_improve(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "limits_return_with_a_flag" limits_return_with_a_flag LimitsReturnWithAFlag {
        test_improve(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "map_reduce_words" map_reduce_words MapReduceWords {
        words_count(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        words_sum(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "needed_without_a_type" needed_without_a_type NeededWithoutAType {
        test_needs(needed_without_a_type::TestNeeds { value: "value", deep: "deep", word: "word" }) -> needed_without_a_type::TestNeedsResult;
    }
    "negotiation_loop" negotiation_loop NegotiationLoop {
        side_buyer(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        side_seller(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "nested_area" nested_area NestedArea {
        math_area(nested_area::MathArea { width: "width", height: "height" }) -> nested_area::MathAreaResult;
    }
    "nested_beside_each_other" nested_beside_each_other NestedBesideEachOther {
    }
    "nested_that_fails" nested_that_fails NestedThatFails {
    }
    "nested_too_deep" nested_too_deep NestedTooDeep {
        test_level(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "nested_with_less_permission" nested_with_less_permission NestedWithLessPermission {
    }
    "nested_with_types" nested_with_types NestedWithTypes {
    }
    "nulls_where_defaults_are" nulls_where_defaults_are NullsWhereDefaultsAre {
        test_nullable(nulls_where_defaults_are::TestNullable { note: "note", q: "q" }) -> nulls_where_defaults_are::TestNullableResult;
    }
    "numbers_stay_what_they_are" numbers_stay_what_they_are NumbersStayWhatTheyAre {
        test_number(numbers_stay_what_they_are::TestNumber { value: "value", list: "list" }) -> numbers_stay_what_they_are::TestNumberResult;
    }
    "operators_on_any_value" operators_on_any_value OperatorsOnAnyValue {
    }
    "operators_on_typed_values" operators_on_typed_values OperatorsOnTypedValues {
    }
    "order_is_paid_or_refused" order_is_paid_or_refused OrderIsPaidOrRefused {
        shop_look_up(order_is_paid_or_refused::ShopLookUp { article: "article" }) -> order_is_paid_or_refused::ShopLookUpResult;
        shop_charge(order_is_paid_or_refused::ShopCharge { card: "card", amount: "amount", currency: "currency", note: "note" }) -> order_is_paid_or_refused::ShopChargeResult;
    }
    "outputs_of_any_kind" outputs_of_any_kind OutputsOfAnyKind {
    }
    "permissions_are_patterns" permissions_are_patterns PermissionsArePatterns {
        a_x(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        b_7(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        c_deep_down(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "poll_until_done" poll_until_done PollUntilDone {
        jobs_status(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        jobs_wait(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "results_may_be_kept" results_may_be_kept ResultsMayBeKept {
        test_typed(results_may_be_kept::TestTyped { text: "text", count: "count", ratio: "ratio", flag: "flag", word: "word", list: "list", inner: "inner", map: "map", free: "free", any: "any" }) -> results_may_be_kept::TestTypedResult;
        test_row(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retries_are_forgotten_in_a_loop" retries_are_forgotten_in_a_loop RetriesAreForgottenInALoop {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retries_are_seen_after_success" retries_are_seen_after_success RetriesAreSeenAfterSuccess {
        test_call_api(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_tell(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retry_after_any_failure" retry_after_any_failure RetryAfterAnyFailure {
        test_first(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_second(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_third(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retry_as_the_node_says" retry_as_the_node_says RetryAsTheNodeSays {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retry_by_a_hook_in_place" retry_by_a_hook_in_place RetryByAHookInPlace {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retry_by_the_control_tool" retry_by_the_control_tool RetryByTheControlTool {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retry_what_is_transient_by_itself" retry_what_is_transient_by_itself RetryWhatIsTransientByItself {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "retry_with_jitter" retry_with_jitter RetryWithJitter {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "routes_by_a_value" routes_by_a_value RoutesByAValue {
        test_any(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "rules_of_contracts" rules_of_contracts RulesOfContracts {
        shop_capped(rules_of_contracts::ShopCapped { cents: "cents", notes: "notes" }) -> rules_of_contracts::ShopCappedResult;
    }
    "saga_with_compensation" saga_with_compensation SagaWithCompensation {
        trip_book(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        trip_cancel(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "scraper_pipeline" scraper_pipeline ScraperPipeline {
        rye_bash(scraper_pipeline::RyeBash { command: "command", cwd: "cwd", env: "env", stdin: "stdin", timeout: "timeout", output_limit: "output_limit", ok_exit_codes: "ok_exit_codes" }) -> scraper_pipeline::RyeBashResult;
        scraper_parse(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        scraper_fetch(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        scraper_analyse(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        scraper_store(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        scraper_done(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "secrets_are_kept" secrets_are_kept SecretsAreKept {
        vault_login(secrets_are_kept::VaultLogin { user: "user", password: "password", pin: "pin" }) -> secrets_are_kept::VaultLoginResult;
        vault_ask(secrets_are_kept::VaultAsk { authorization: "authorization", anything: "anything", question: "question" }) -> secrets_are_kept::VaultAskResult;
        vault_tell(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "secrets_in_channels" secrets_in_channels SecretsInChannels {
        vault_login(secrets_in_channels::VaultLogin { user: "user", password: "password", pin: "pin" }) -> secrets_in_channels::VaultLoginResult;
        vault_ask(secrets_in_channels::VaultAsk { authorization: "authorization", anything: "anything", question: "question" }) -> secrets_in_channels::VaultAskResult;
    }
    "secrets_of_a_nested_graph" secrets_of_a_nested_graph SecretsOfANestedGraph {
        vault_ask(secrets_of_a_nested_graph::VaultAsk { authorization: "authorization", anything: "anything", question: "question" }) -> secrets_of_a_nested_graph::VaultAskResult;
    }
    "templates_fall_back" templates_fall_back TemplatesFallBack {
    }
    "templates_find_parts" templates_find_parts TemplatesFindParts {
    }
    "templates_keep_types_or_make_text" templates_keep_types_or_make_text TemplatesKeepTypesOrMakeText {
        test_echo(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "templates_know_the_time" templates_know_the_time TemplatesKnowTheTime {
        test_wait(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "templates_write_for_a_shell" templates_write_for_a_shell TemplatesWriteForAShell {
        rye_bash(templates_write_for_a_shell::RyeBash { command: "command", cwd: "cwd", env: "env", stdin: "stdin", timeout: "timeout", output_limit: "output_limit", ok_exit_codes: "ok_exit_codes" }) -> templates_write_for_a_shell::RyeBashResult;
    }
    "threads_are_told_their_parent" threads_are_told_their_parent ThreadsAreToldTheirParent {
        rye_agent_threads_thread_directive(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "threads_fan_out" threads_fan_out ThreadsFanOut {
        rye_agent_threads_thread_directive(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        collect_all(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "threads_go_on_in_others" threads_go_on_in_others ThreadsGoOnInOthers {
        rye_agent_threads_thread_directive(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "tools_are_programs" tools_are_programs ToolsArePrograms {
    }
    "tools_are_routed_by_name" tools_are_routed_by_name ToolsAreRoutedByName {
        agent_choose(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        dispatch(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "tools_denied_at_dispatch" tools_denied_at_dispatch ToolsDeniedAtDispatch {
        dispatch(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "tools_on_a_remote" tools_on_a_remote ToolsOnARemote {
        test_work(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "tools_with_a_contract_are_typed" tools_with_a_contract_are_typed ToolsWithAContractAreTyped {
        test_typed(tools_with_a_contract_are_typed::TestTyped { text: "text", count: "count", ratio: "ratio", flag: "flag", word: "word", list: "list", inner: "inner", map: "map", free: "free", any: "any" }) -> tools_with_a_contract_are_typed::TestTypedResult;
    }
    "tools_with_half_a_contract" tools_with_half_a_contract ToolsWithHalfAContract {
        test_loose(tools_with_half_a_contract::TestLoose { a: "a", b: "b" }) -> graph_runtime::Value;
    }
    "tools_without_contract_answer_in_envelopes" tools_without_contract_answer_in_envelopes ToolsWithoutContractAnswerInEnvelopes {
        test_call(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "types_join_over_all_ways" types_join_over_all_ways TypesJoinOverAllWays {
    }
    "types_of_lists_and_nulls" types_of_lists_and_nulls TypesOfListsAndNulls {
        test_typed(types_of_lists_and_nulls::TestTyped { text: "text", count: "count", ratio: "ratio", flag: "flag", word: "word", list: "list", inner: "inner", map: "map", free: "free", any: "any" }) -> types_of_lists_and_nulls::TestTypedResult;
    }
    "values_nest_only_so_deep" values_nest_only_so_deep ValuesNestOnlySoDeep {
    }
    "visits_look_back" visits_look_back VisitsLookBack {
        test_guess(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "visits_look_back_at_what_was_collected" visits_look_back_at_what_was_collected VisitsLookBackAtWhatWasCollected {
        test_do(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_single(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
    "visits_without_feedback" visits_without_feedback VisitsWithoutFeedback {
        test_a(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
        test_b(graph_runtime::Map<String, graph_runtime::Value>) -> graph_runtime::Value;
    }
}
