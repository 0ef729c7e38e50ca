"""Where each command is: it is imported when it is run. `python -m tools.commands` has their help learn of changes."""

from typing import Final

_HERE: Final = "holdfast.hosts.cli"
COMMANDS: Final = {
    "worker": f"{_HERE}.working:worker_command",
    "run start": f"{_HERE}.starting:start_command",
    "run list": f"{_HERE}.listing:list_command",
    "run show": f"{_HERE}.showing:show_command",
    "run wait": f"{_HERE}.waiting:wait_command",
    "run logs": f"{_HERE}.hearing:logs_command",
    "run annotate": f"{_HERE}.annotating:annotate_command",
    "run artifacts": f"{_HERE}.artifacts:artifacts_command",
    "run ai": f"{_HERE}.ai:ai_command",
    "run pause": f"{_HERE}.steering:pause_command",
    "run resume": f"{_HERE}.steering:resume_command",
    "run cancel": f"{_HERE}.steering:cancel_command",
    "run terminate": f"{_HERE}.steering:terminate_command",
    "run rerun": f"{_HERE}.rerunning:rerun_command",
    "run remove": f"{_HERE}.removing:remove_run_command",
    "run wake": f"{_HERE}.waking:wake_command",
    "run signal": f"{_HERE}.signalling:signal_command",
    "run messages": f"{_HERE}.messages:messages_command",
    "run query": f"{_HERE}.exposed:query_command",
    "run update": f"{_HERE}.exposed:update_command",
    "why": f"{_HERE}.why:why_command",
    "doctor": f"{_HERE}.doctor:doctor_command",
    "history export": f"{_HERE}.histories:export_command",
    "lint": f"{_HERE}.linting:lint_command",
    "replay": f"{_HERE}.replaying:replay_history_command",
    "check-upgrade": f"{_HERE}.replaying:check_upgrade_command",
    "debug": f"{_HERE}.debugging:debug_command",
    "sink add": f"{_HERE}.sinks:add_command",
    "sink remove": f"{_HERE}.sinks:remove_command",
    "sink list": f"{_HERE}.sinks:sinks_command",
    "dead-letter list": f"{_HERE}.letters:letters_command",
    "dead-letter replay": f"{_HERE}.letters:replay_command",
    "db upgrade": f"{_HERE}.database:upgrade_command",
    "db status": f"{_HERE}.database:status_command",
}
"""Each command by its path, and where it is."""
