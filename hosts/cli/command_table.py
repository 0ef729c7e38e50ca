"""The commands and where they are defined. Run `python -m tools.commands` after a change of their options or help."""

from typing import Final

_HERE: Final = "holdfast.hosts.cli"
COMMANDS: Final = {
    "worker": f"{_HERE}.worker:worker_command",
    "run start": f"{_HERE}.run_start:start_command",
    "run list": f"{_HERE}.run_list:list_command",
    "run show": f"{_HERE}.run_show:show_command",
    "run wait": f"{_HERE}.run_wait:wait_command",
    "run logs": f"{_HERE}.run_logs:logs_command",
    "run annotate": f"{_HERE}.annotate:annotate_command",
    "run artifacts": f"{_HERE}.artifacts:artifacts_command",
    "run ai": f"{_HERE}.ai:ai_command",
    "run pause": f"{_HERE}.run_control:pause_command",
    "run resume": f"{_HERE}.run_control:resume_command",
    "run cancel": f"{_HERE}.run_control:cancel_command",
    "run terminate": f"{_HERE}.run_control:terminate_command",
    "run rerun": f"{_HERE}.run_rerun:rerun_command",
    "run remove": f"{_HERE}.run_remove:remove_run_command",
    "run wake": f"{_HERE}.run_wake:wake_command",
    "run signal": f"{_HERE}.run_signal:signal_command",
    "run messages": f"{_HERE}.messages:messages_command",
    "run query": f"{_HERE}.queries:query_command",
    "run update": f"{_HERE}.queries:update_command",
    "why": f"{_HERE}.why:why_command",
    "doctor": f"{_HERE}.doctor:doctor_command",
    "history export": f"{_HERE}.history:export_command",
    "lint": f"{_HERE}.lint:lint_command",
    "replay": f"{_HERE}.replay:replay_history_command",
    "check-upgrade": f"{_HERE}.replay:check_upgrade_command",
    "debug": f"{_HERE}.debug:debug_command",
    "sink add": f"{_HERE}.sinks:add_command",
    "sink remove": f"{_HERE}.sinks:remove_command",
    "sink list": f"{_HERE}.sinks:sinks_command",
    "dead-letter list": f"{_HERE}.dead_letters:letters_command",
    "dead-letter replay": f"{_HERE}.dead_letters:replay_command",
    "db upgrade": f"{_HERE}.database:upgrade_command",
    "db status": f"{_HERE}.database:status_command",
}
"""Command paths, such as `run list`, mapped to `module:name` of the click command, which is imported when it runs."""
