"""The JSON forms of commands and replies: a public contract, so each is written out here."""

import json
from typing import Any

import attrs
import pytest

from holdfast.kernel import commands as c
from holdfast.kernel.commands.codec import (
    command_json,
    fingerprint_text,
    from_data,
    reply_from,
    reply_json,
    to_data,
)
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import RatePlan, RetryPolicy
from holdfast.kernel.rules.registry import RULES, command_from, reply_type
from holdfast.ports.actors import Actor
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import GivenOptions, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim

BASE = '"idempotency_key":null,"namespace":"default"'
ATTEMPT = c.Attempt(
    job="r.1",
    epoch=2,
    run="r",
    definition="w@1",
    queue="q",
    kind=JobKind.EXPAND_MAP,
    node="n",
    item=None,
    attempt=1,
    max_attempts=3,
    input="1",
)

COMMANDS: list[tuple[c.Command[Any], str]] = [
    (
        c.RunCreate(workflow="w", input=Payload(inline='{"é":1}')),
        (
            '{"actor":null,"annotations":[],"attributes":null,"concurrency_full":"wait","concurrency_key":null,"concurrency_limit":1,"concurrency_waiting":null,"concurrency_within":[],"deadline":null,'
            '"given":null,"headers":null,"id":null,"idempotency_key":null,"if_active":null,"if_ended":null,"if_exists":"error",'
            '"input":{"blob":null,"inline":"{\\"\\u00e9\\":1}"},"namespace":"default","overrides":[],'
            '"priority":null,"queue":null,"rate":null,"scheduled":null,"signals":[],"start_at":null,"type":"run.create",'
            '"units":null,"version":null,"weight":null,"workflow":"w"}'
        ),
    ),
    (c.RunTransition(run_id="x"), f'{{{BASE},"run_id":"x","type":"run.transition"}}'),
    (
        c.RunCancel(run_id="x", actor=Actor("user", "ann")),
        f'{{"actor":{{"id":"ann","kind":"user","version":""}},"generation":null,{BASE},"reason":"","run_id":"x","type":"run.cancel"}}',
    ),
    (
        c.RunTerminate(run_id="x"),
        f'{{"actor":null,"generation":null,{BASE},"reason":"","run_id":"x","type":"run.terminate"}}',
    ),
    (
        c.RunSignal(run_id="x", signal=c.ChannelMessage(channel="approval", payload=Payload(inline="5"))),
        (
            f'{{"actor":null,"generation":null,{BASE},"run_id":"x","signal":{{"channel":"approval",'
            '"checked":false,"given":null,"payload":{"blob":null,"inline":"5"}},"type":"run.signal"}'
        ),
    ),
    (
        c.RunUpdate(run_id="x", update="Board.move_to", arguments=Payload(inline='{"field":"e4"}')),
        (
            '{"actor":null,"arguments":{"blob":null,"inline":"{\\"field\\":\\"e4\\"}"},"checked":false,"generation":null,'
            f'"given":null,{BASE},'
            '"run_id":"x","type":"run.update","update":"Board.move_to"}'
        ),
    ),
    (
        c.RunPause(run_id="x"),
        f'{{"actor":null,"generation":null,{BASE},"reason":"","run_id":"x","type":"run.pause"}}',
    ),
    (
        c.RunResume(run_id="x"),
        f'{{"actor":null,"generation":null,{BASE},"reason":"","row":null,"run_id":"x","type":"run.resume"}}',
    ),
    (
        c.RunRerunFrom(run_id="x", stage="b"),
        (
            f'{{"actor":null,"generation":null,{BASE},"reason":"","row":null,"run_id":"x","stage":"b","type":"run.rerun_from",'
            '"version":null}'
        ),
    ),
    (c.RunRemove(run_id="x"), f'{{"actor":null,"generation":null,{BASE},"run_id":"x","type":"run.remove"}}'),
    (
        c.RunAnnotate(
            run_id="x",
            annotations=(c.NewAnnotation(name="n", value='{"a":1}'),),
            actor=Actor(kind="person", id="me"),
        ),
        (
            '{"actor":{"id":"me","kind":"person","version":""},'
            '"annotations":[{"name":"n","value":"{\\"a\\":1}"}],"idempotency_key":null,"item":null,"key":null,'
            '"namespace":"default","reason":"","run_id":"x","stage":null,"type":"run.annotate"}'
        ),
    ),
    (
        c.TopicPublish(
            message=c.NewTopicMessage(topic="t", payload="1", attributes='{"k":"v"}', checked=True, keep=9),
            id="m",
        ),
        (
            '{"actor":null,"id":"m","idempotency_key":null,"message":{"attributes":"{\\"k\\":\\"v\\"}","checked":true,'
            '"keep":9,"keep_last":null,"payload":"1","topic":"t"},"namespace":"default","type":"topic.publish"}'
        ),
    ),
    (
        c.TopicDeliver(topic="t", limit=7),
        (
            '{"after":"","idempotency_key":null,"limit":7,"namespace":"default","topic":"t","type":"topic.deliver"}'
        ),
    ),
    (
        c.TriggerPut(
            trigger="t", topic="o", start=c.RunCreate(workflow="w", input=Payload(inline="null")), since=7
        ),
        (
            '{"actor":null,"declared":null,"idempotency_key":null,"namespace":"default","selection":"{}","sin'
            'ce":7,"start":{"actor":null,"annotations":[],"attributes":null,"concurrency_full":"wait","concur'
            'rency_key":null,"concurrency_limit":1,"concurrency_waiting":null,"concurrency_within":[],"deadli'
            'ne":null,"given":null,"headers":null,"id":null,"idempotency_key":null,"if_active":null,"if_ended":null,"if_exis'
            'ts":"error","input":{"blob":null,"inline":"null"},"namespace":"default","overrides":[],"priority'
            '":null,"queue":null,"rate":null,"scheduled":null,"signals":[],"start_at":null,"units":null,"vers'
            'ion":null,"weight":null,"workflow":"w"},"topic":"o","trigger":"t","type":"trigger.put"}'
        ),
    ),
    (
        c.TriggerFire(trigger="t", expected=3, digest="d", number=4, next=5, refused="why"),
        (
            '{"digest":"d","expected":3,"idempotency_key":null,"namespace":"default","next":5,"number":4,"refused":"why","'
            'start":null,"trigger":"t","type":"trigger.fire"}'
        ),
    ),
    (
        c.TriggerPause(trigger="t", reason="why"),
        (
            '{"actor":null,"idempotency_key":null,"namespace":"default","reason":"why","trigger":"t","type":"'
            'trigger.pause"}'
        ),
    ),
    (
        c.TriggerResume(trigger="t", skip=True),
        (
            '{"actor":null,"idempotency_key":null,"namespace":"default","skip":true,"trigger":"t","type":"tri'
            'gger.resume"}'
        ),
    ),
    (
        c.TopicRemove(topic="t"),
        '{"actor":null,"idempotency_key":null,"limit":1000,"namespace":"default","topic":"t","type":"topic.remove"}',
    ),
    (
        c.TriggerRemove(trigger="t"),
        (
            '{"actor":null,"declared":null,"idempotency_key":null,"namespace":"default","trigger":"t","type":'
            '"trigger.remove"}'
        ),
    ),
    (
        c.RunDeliver(job="r.2", parent="q.1", output=Payload(inline="1")),
        (
            '{"failure":null,"idempotency_key":null,"job":"r.2","namespace":"default",'
            '"output":{"blob":null,"inline":"1"},"parent":"q.1","type":"run.deliver"}'
        ),
    ),
    (
        c.RunDeliver(job="r.2", parent="q.1", failure=c.Failure(code="blob_missing", message="gone")),
        (
            '{"failure":{"arguments":null,"code":"blob_missing","message":"gone","retry_after":null,"retryable":true,"rule":null,'
            '"traceback":"","type":""},"idempotency_key":null,"job":"r.2","namespace":"default",'
            '"output":null,"parent":"q.1","type":"run.deliver"}'
        ),
    ),
    (
        c.UpdateDeliver(job="r.2", run_id="x", output=Payload(inline="1")),
        (
            '{"failure":null,"idempotency_key":null,"job":"r.2","namespace":"default",'
            '"output":{"blob":null,"inline":"1"},"run_id":"x","type":"update.deliver"}'
        ),
    ),
    (
        c.StagePollSuspended(),
        '{"idempotency_key":null,"limit":500,"namespace":"default","type":"stage.poll_suspended"}',
    ),
    (
        c.StageWake(run_id="x", stage="a"),
        (
            '{"actor":null,"idempotency_key":null,"item":null,"key":null,"namespace":"default","run_id":"x","stage":"a",'
            '"type":"stage.wake"}'
        ),
    ),
    (
        c.JobSettle(
            job="r.1", epoch=2, outcome=c.StageSuspended(state=Payload(inline="1"), check_after=5, key="k")
        ),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"check_after":5,"give_up_at":null,"key":"k","kind":"suspended","state":{"blob":null,'
            '"inline":"1"}},"outputs":[],"received":[],"started_at":null,"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(job="r.1", epoch=2, outcome=c.PollNotReady()),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"check_after":null,"kind":"not_ready"},"outputs":[],"received":[],"started_at":null,'
            '"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(job="r.1", epoch=2, outcome=c.ConditionEvaluated(passed=True)),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"kind":"condition_evaluated","passed":true},"outputs":[],"received":[],"started_at":null,'
            '"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(job="r.1", epoch=2, outcome=c.Cancelled()),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"kind":"cancelled","reason":""},"outputs":[],"received":[],"started_at":null,'
            '"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(
            job="r.1",
            epoch=2,
            outcome=c.ChildRunStarted(
                run_id="x/a",
                workflow="w",
                version="1",
                input=Payload(inline="1"),
                options=GivenOptions(
                    queue="slow", priority=-1, attributes='{"k":"v"}', start_at=5, deadline=6, weight=3
                ),
            ),
        ),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"close_policy":"cancel","input":{"blob":null,"inline":"1"},"kind":"child_started",'
            '"options":{"attributes":"{\\"k\\":\\"v\\"}","concurrency":null,"deadline":6,"headers":null,"priority":-1,"queue":"slow","rate":null,"start_at":5,"units":null,"weight":3},'
            '"run_id":"x/a","version":"1","workflow":"w"},"outputs":[],"received":[],"started_at":null,'
            '"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.RunRepair(),
        '{"actor":null,"after":"","idempotency_key":null,"limit":500,"namespace":"default","redeliver":false,"run":null,"type":"run.repair"}',
    ),
    (
        c.JobClaim(
            session="s", queue_claims=(QueueClaim(queue="q", definitions=("w@1",), limit=2),), limit=3
        ),
        (
            '{"idempotency_key":null,"limit":3,"namespace":"default","pass_over":"nothing",'
            '"queue_claims":[{"definitions":["w@1"],"limit":2,"queue":"q"}],"session":"s","type":"job.claim"}'
        ),
    ),
    (
        c.JobClaimOne(session="s", job="r.1", epoch=0, definitions=("w@1", "v@2")),
        (
            '{"definitions":["w@1","v@2"],"epoch":0,"idempotency_key":null,"job":"r.1","namespace":"default",'
            '"pass_over":"nothing","session":"s","type":"job.claim_one"}'
        ),
    ),
    (
        c.JobSettle(job="r.1", epoch=2, outcome=c.Completed(output=Payload(blob="a/b"))),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"kind":"completed","output":{"blob":"a/b","inline":null}},"outputs":[],"received":[],'
            '"started_at":null,"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(
            job="r.1",
            epoch=2,
            outcome=c.MapExpanded(items=(Payload(inline="1"),)),
            started_at=9,
            take_next="s",
        ),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"items":[{"blob":null,"inline":"1"}],"kind":"map_expanded"},"outputs":[],"received":[],'
            '"started_at":9,"take_next":"s","type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(
            job="r.1",
            epoch=2,
            outcome=c.Failed(failure=c.Failure(code="e", message="m")),
            outputs=(c.AttemptOutput(kind="progress", at=5, data="0.5"),),
        ),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"failure":{"arguments":null,"code":"e","message":"m","retry_after":null,"retryable":true,'
            '"rule":null,"traceback":"","type":""},"kind":"failed"},"outputs":[{"at":5,"call":"","data":"0.5",'
            '"id":null,"kind":"progress","node":null}],"received":[],"started_at":null,"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(
            job="r.1",
            epoch=2,
            outcome=c.ContinuedAsNew(
                workflow="w",
                version="1",
                input=Payload(inline="1"),
                seen=4,
                updates=(c.CarriedUpdate(update="B.add", arguments=Payload(inline="{}"), again=3, key="k"),),
                published=(c.CarriedValue(name="page", value=Payload(inline="7")),),
            ),
        ),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"input":{"blob":null,"inline":"1"},"kind":"continued_as_new","published":[{"name":"page",'
            '"value":{"blob":null,"inline":"7"}}],"seen":4,"updates":[{"again":3,"arguments":{"blob":null,'
            '"inline":"{}"},"checked":false,"key":"k","sender":null,"update":"B.add"}],"version":"1","workflow":"w"},'
            '"outputs":[],"received":[],"started_at":null,"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(job="r.1", epoch=2, outcome=c.QueuedStepCompleted(output=Payload(inline="5"))),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"kind":"step_completed","output":{"blob":null,"inline":"5"}},"outputs":[],"received":[],'
            '"started_at":null,"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobSettle(
            job="r.1", epoch=2, outcome=c.QueuedStepFailed(error="{}", retry=RetryPolicy(), retry_after=7)
        ),
        (
            '{"epoch":2,"events":[],"host":"","idempotency_key":null,"job":"r.1","namespace":"default",'
            '"outcome":{"error":"{}","kind":"step_failed","retry":{"attempts":3,"backoff":2.0,"jitter":0.2,'
            '"total_time_us":null,"wait_max_us":300000000,"wait_us":1000000},"retry_after":7},"outputs":[],"received":[],'
            '"started_at":null,"take_next":null,"type":"job.settle"}'
        ),
    ),
    (
        c.JobRecord(
            job="r.1",
            epoch=2,
            seen=3,
            records=(
                c.StepQueue(
                    call="1",
                    step="s",
                    queued=c.QueuedStepJob(
                        queue="gpu",
                        input=Payload(inline="5"),
                        attempts=3,
                        priority=-1,
                        max_concurrency=2,
                        rate=RatePlan(limit=60, per_us=7, name="model"),
                    ),
                ),
                c.StepCancel(call="2", job=4),
            ),
        ),
        (
            '{"epoch":2,"idempotency_key":null,"job":"r.1","lost_attempts":0,"namespace":"default",'
            '"outputs":[],"received":[],"records":[{"attempt":1,"call":"1",'
            '"queued":{"attempts":3,"input":{"blob":null,"inline":"5"},"max_concurrency":2,"priority":-1,'
            '"queue":"gpu","rate":{"by":null,"limit":60,"name":"model","per_us":7},"slots":null},"record":"step_queue",'
            '"site":"","step":"s","undoes":null},{"call":"2","job":4,"record":"step_cancel"}],'
            '"reported":0,"seen":3,"type":"job.record"}'
        ),
    ),
    (
        c.JobRelease(job="r.1", epoch=2),
        '{"delay":0,"epoch":2,"idempotency_key":null,"job":"r.1","namespace":"default","type":"job.release"}',
    ),
    (
        c.JobRecord(
            job="r.1",
            epoch=2,
            seen=3,
            records=(
                c.EventAppend(
                    event=events.StepCompleted(call="1", step="s", attempt=1), payload=Payload(inline="5")
                ),
                c.StepFail(
                    event=events.StepFailed(
                        call="2",
                        step="s",
                        attempt=1,
                        error=events.RecordedError(type="E", message="no", code="body_error"),
                    ),
                    retry=None,
                ),
            ),
        ),
        (
            '{"epoch":2,"idempotency_key":null,"job":"r.1","lost_attempts":0,"namespace":"default",'
            '"outputs":[],"received":[],"records":[{"artifacts":[],"event":{"data":{"attempt":1,"call":"1","step":"s"},'
            '"type":"step.completed"},"payload":{"blob":null,"inline":"5"},"published":[],"record":"event"},'
            '{"event":{"data":{"attempt":1,"call":"2","error":{"code":"body_error","message":"no","type":"E"},'
            '"step":"s"},"type":"step.failed"},"first_started_at":null,"is_alone":true,"lost_attempts":0,"record":"step_fail","retry":null,'
            '"retry_after":null}],'
            '"reported":0,"seen":3,"type":"job.record"}'
        ),
    ),
    (
        c.JobHeartbeat(attempts=(c.AttemptReport(job="r.1", epoch=2),)),
        f'{{"attempts":[{{"epoch":2,"job":"r.1","outputs":[]}}],{BASE},"type":"job.heartbeat"}}',
    ),
    (
        c.JobReapUnresponsive(),
        '{"grace":0,"idempotency_key":null,"limit":500,"namespace":"default","type":"job.reap_unresponsive"}',
    ),
    (
        c.JobAdmit(keys=("w/a",)),
        (
            '{"after":"","idempotency_key":null,"keys":["w/a"],"limit":500,"namespace":"default",'
            '"type":"job.admit"}'
        ),
    ),
    (
        c.RunClaimPending(keys=("k",), after='["n","k"]'),
        (
            '{"after":"[\\"n\\",\\"k\\"]","idempotency_key":null,"keys":["k"],"limit":500,"namespace":"default",'
            '"rates":[],"type":"run.claim_pending"}'
        ),
    ),
    (c.RunExpire(), '{"idempotency_key":null,"limit":500,"namespace":"default","type":"run.expire"}'),
    (c.JobWakeDue(), '{"idempotency_key":null,"limit":500,"namespace":"default","type":"job.wake_due"}'),
    (
        c.JobExecute(session="s", job="r.1", epoch=2),
        (
            '{"epoch":2,"idempotency_key":null,"job":"r.1","lease":null,"namespace":"default",'
            '"pass_over":"nothing","session":"s","type":"job.execute"}'
        ),
    ),
    (
        c.SessionOpen(host="h", lease=7),
        '{"host":"h","idempotency_key":null,"lease":7,"namespace":"default","type":"session.open"}',
    ),
    (
        c.SessionOpen(
            host="h",
            lease=7,
            principal="key:a",
            about=c.WorkerAbout(
                name="mail",
                versions=("holdfast 1",),
                queues=(c.ServedQueue(name="q", limit=2),),
                definitions=("w@1",),
            ),
        ),
        (
            '{"about":{"concurrency":1,"definitions":["w@1"],"has_more":false,"language":"python","name":"mail",'
            '"queues":[{"limit":2,"name":"q"}],"versions":["holdfast 1"]},"host":"h","idempotency_key":null,"lease":7,'
            '"namespace":"default","principal":"key:a","type":"session.open"}'
        ),
    ),
    (
        c.SessionRenew(session="s", lease=7),
        '{"idempotency_key":null,"lease":7,"namespace":"default","session":"s","type":"session.renew"}',
    ),
    (c.SessionClose(session="s"), f'{{{BASE},"session":"s","type":"session.close"}}'),
    (
        c.SessionReap(grace=7),
        '{"grace":7,"idempotency_key":null,"limit":100,"namespace":"default","type":"session.reap"}',
    ),
    (
        c.LeaseReapStale(),
        '{"idempotency_key":null,"limit":500,"namespace":"default","type":"lease.reap_stale"}',
    ),
    (
        c.LeaderAcquire(name="d", session="s", lease=7),
        '{"idempotency_key":null,"lease":7,"name":"d","namespace":"default","session":"s","type":"leader.acquire"}',
    ),
    (
        c.SinkRegister(sink="s", types=("run.*",)),
        f'{{"actor":null,{BASE},"since":null,"sink":"s","type":"sink.register","types":["run.*"]}}',
    ),
    (c.SinkRemove(sink="s"), f'{{"actor":null,{BASE},"sink":"s","type":"sink.remove"}}'),
    (
        c.OutboxFlush(sink="s", lease=7),
        '{"idempotency_key":null,"lease":7,"limit":100,"namespace":"default","sink":"s","type":"outbox.flush"}',
    ),
    (
        c.OutboxRead(sink="s", registration="k", acknowledged=3, passes_over=2),
        (
            '{"acknowledged":3,"idempotency_key":null,"limit":100,"namespace":"default","passes_over":2,"reads_on":true,'
            '"registration":"k","rows_max":500,"sink":"s","type":"outbox.read"}'
        ),
    ),
    (
        c.OutboxSettle(
            sink="s",
            registration="k",
            holder="h",
            delivered=(c.StreamProgress(run="r", number=3),),
            refused=(c.StreamFailure(run="q", delivered=1, number=2, error="e"),),
            untouched=("p",),
            took=True,
        ),
        (
            '{"delivered":[{"number":3,"run":"r"}],"error":null,"holder":"h","idempotency_key":null,'
            '"namespace":"default","refused":[{"delivered":1,"error":"e","final":false,"number":2,"run":"q"}],'
            '"registration":"k","retry_after":0,"sink":"s","took":true,"type":"outbox.settle","untouched":["p"]}'
        ),
    ),
    (
        c.OutboxSweep(sinks=("s",), began=5),
        (
            '{"after":"","began":5,"idempotency_key":null,"limit":500,"namespace":"default","sinks":["s"],'
            '"type":"outbox.sweep"}'
        ),
    ),
    (
        c.DeadLetterReplay(),
        (
            '{"actor":null,"idempotency_key":null,"limit":500,"namespace":"default","reason":"","run_id":"","sink":"",'
            '"skip":false,"type":"dead_letter.replay"}'
        ),
    ),
    (
        c.SchedulePut(
            schedule="s",
            start=c.RunCreate(workflow="w", input=Payload(inline="1")),
            timing='[{"anchor":0,"kind":"every","length":3600000000}]',
            policy=c.SchedulePolicy(overlap=c.Overlap.QUEUE_ONE, missed=c.Missed.ALL, window=7),
        ),
        (
            '{"actor":null,"declared":null,"idempotency_key":null,"if_exists":"error","namespace":"default",'
            '"policy":{"jitter":0,"missed":"all","overlap":"queue_one","pause_after_failures":null,"runs_max":null,'
            '"window":7},"schedule":"s","start":{"actor":null,"annotations":[],"attributes":null,'
            '"concurrency_full":"wait","concurrency_key":null,"concurrency_limit":1,"concurrency_waiting":null,"concurrency_within":[],"deadline":null,"given":null,"headers":null,"id":null,'
            '"idempotency_key":null,"if_active":null,"if_ended":null,"if_exists":"error","input":{"blob":null,'
            '"inline":"1"},"namespace":"default","overrides":[],"priority":null,"queue":null,"rate":null,"scheduled":null,'
            '"signals":[],"start_at":null,"units":null,"version":null,"weight":null,"workflow":"w"},'
            '"timing":"[{\\"anchor\\":0,\\"kind\\":\\"every\\",\\"length\\":3600000000}]","type":"schedule.put"}'
        ),
    ),
    (
        c.ScheduleFire(workflows=("w",)),
        (
            '{"idempotency_key":null,"limit":100,"namespace":"default","type":"schedule.fire",'
            '"workflows":["w"]}'
        ),
    ),
    (
        c.SchedulePause(schedule="s", reason="holiday"),
        f'{{"actor":null,{BASE},"reason":"holiday","schedule":"s","type":"schedule.pause"}}',
    ),
    (
        c.ScheduleResume(schedule="s", make_up=True),
        (
            '{"actor":null,"idempotency_key":null,"make_up":true,"namespace":"default","schedule":"s",'
            '"type":"schedule.resume"}'
        ),
    ),
    (
        c.ScheduleTrigger(schedule="s", overlap=c.Overlap.ALLOW),
        f'{{"actor":null,{BASE},"overlap":"allow","schedule":"s","type":"schedule.trigger"}}',
    ),
    (
        c.ScheduleBackfill(schedule="s", times=(5, 7)),
        f'{{"actor":null,{BASE},"overlap":"queue","schedule":"s","times":[5,7],"type":"schedule.backfill"}}',
    ),
    (
        c.ScheduleRemove(schedule="s", declared="f"),
        (
            '{"actor":null,"declared":"f","idempotency_key":null,"namespace":"default","schedule":"s",'
            '"type":"schedule.remove"}'
        ),
    ),
    (
        c.ScheduleReplan(workflows=("w",), version="2026a", after="k"),
        (
            '{"after":"k","idempotency_key":null,"limit":100,"namespace":"default","type":"schedule.replan",'
            '"version":"2026a","workflows":["w"]}'
        ),
    ),
    (
        c.WorkflowRegister(workflows=(c.WorkflowSchemas(workflow="w", version="2", schemas='{"input":{}}'),)),
        (
            '{"idempotency_key":null,"namespace":"default","type":"workflow.register","workflows":'
            '[{"schemas":"{\\"input\\":{}}","version":"2","workflow":"w"}]}'
        ),
    ),
    (
        c.NamespaceCreate(namespace="team", note="ours", max_active_runs=5),
        (
            '{"actor":null,"idempotency_key":null,"max_active_runs":5,"max_starts_per_minute":null,"namespace":"team",'
            '"note":"ours","type":"namespace.create"}'
        ),
    ),
    (
        c.NamespaceDelete(namespace="team"),
        '{"actor":null,"idempotency_key":null,"namespace":"team","type":"namespace.delete"}',
    ),
    (
        c.LimitSet(name="rate:model", rate_limit=300, rate_period=60_000_000, reason="slow"),
        (
            '{"actor":null,"after":"","idempotency_key":null,"limit":500,"name":"rate:model","namespace":"def'
            'ault","paused":null,"rate_limit":300,"rate_period":60000000,"reason":"slow","slots":null,"type":'
            '"limit.set"}'
        ),
    ),
    (
        c.CredentialCreate(
            id="a" * 12,
            label="ci",
            hash="0f",
            scopes=("read",),
            namespaces=("*",),
            actor=Actor("user", "ann"),
            request_id="r-1",
        ),
        (
            '{"actor":{"id":"ann","kind":"user","version":""},"expires_at":null,"hash":"0f","id":"aaaaaaaaaaaa",'
            '"idempotency_key":null,"kind":"key","label":"ci","namespace":"default","namespaces":["*"],'
            '"only_if_first":false,"principal":"","request_id":"r-1","scopes":["read"],"type":"credential.create"}'
        ),
    ),
    (
        c.CredentialRotate(name="ci", hash="0f", grace=0),
        (
            '{"actor":null,"grace":0,"hash":"0f","idempotency_key":null,"name":"ci","namespace":"default",'
            '"type":"credential.rotate"}'
        ),
    ),
    (
        c.CredentialRevoke(name="ci", reason="leaked"),
        (
            '{"actor":null,"idempotency_key":null,"name":"ci","namespace":"default","reason":"leaked",'
            '"type":"credential.revoke"}'
        ),
    ),
    (
        c.CredentialTouch(ids=("a" * 12,)),
        '{"idempotency_key":null,"ids":["aaaaaaaaaaaa"],"namespace":"default","type":"credential.touch"}',
    ),
    (
        c.BrowserSessionCreate(
            id="a" * 12,
            hash="0f",
            principal="ann",
            scopes=("read",),
            namespaces=("*",),
            idle=60_000_000,
            expires_at=7,
            replaces="b" * 12,
        ),
        (
            '{"actor":null,"credential":null,"credential_hash":null,"expires_at":7,"hash":"0f","id":"aaaaaaaaaaaa",'
            '"idempotency_key":null,"idle":60000000,"kind":"user","namespace":"default","namespaces":["*"],'
            '"principal":"ann","replaces":"bbbbbbbbbbbb","scopes":["read"],"type":"browser_session.create"}'
        ),
    ),
    (
        c.BrowserSessionDelete(principal="ann"),
        (
            '{"actor":null,"id":null,"idempotency_key":null,"kind":"user","namespace":"default","principal":"ann",'
            '"type":"browser_session.delete"}'
        ),
    ),
    (
        c.BrowserSessionTouch(ids=("a" * 12,)),
        '{"idempotency_key":null,"ids":["aaaaaaaaaaaa"],"namespace":"default","type":"browser_session.touch"}',
    ),
    (
        c.LimitClear(name="run:k"),
        (
            '{"actor":null,"after":"","idempotency_key":null,"limit":500,"name":"run:k","namespace":"default"'
            ',"reason":"","type":"limit.clear"}'
        ),
    ),
]

REPLIES: list[tuple[object, str]] = [
    (
        c.RunCreated(run_id="x", run="r", generation=1, status=RunStatus.RUNNING, created=True),
        (
            '{"created":true,"ended":[],"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"generation":1,"messages":[],'
            '"run":"r","run_id":"x","status":"running"}'
        ),
    ),
    (
        c.RunTransitioned(action="advanced", status=RunStatus.RUNNING),
        '{"action":"advanced","status":"running"}',
    ),
    (
        c.RunDelivered(status="delivered"),
        '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"status":"delivered"}',
    ),
    (
        c.TopicPublished(id="m", published=True, follow_up=c.FollowUp(topics=("t",))),
        (
            '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":["t"]},"id":"m","published":true}'
        ),
    ),
    (
        c.TopicDelivered(topic="t", deliveries=2, more=True, next="n"),
        (
            '{"deliveries":2,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"more":true,'
            '"next":"n","problem":null,"topic":"t"}'
        ),
    ),
    (
        c.TriggerStored(trigger="t", created=True, changed=True, next_number=4),
        ('{"changed":true,"created":true,"next_number":4,"trigger":"t"}'),
    ),
    (
        c.TriggerFired(handled=True, run_id="t/o/4"),
        (
            '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"handled":true,"pro'
            'blem":null,"refused":null,"run_id":"t/o/4"}'
        ),
    ),
    (c.TopicRemoved(rows=3, more=True), '{"more":true,"rows":3}'),
    (c.TriggerRemoved(removed=True), '{"removed":true}'),
    (c.StagesWoken(woken=1), '{"early":0,"woken":1}'),
    (
        c.RunRepaired(repaired=("x",), checked=2, next=None),
        '{"checked":2,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"next":null,"repaired":["x"]}',
    ),
    (c.RunRemoved(removed=True, runs=("r",)), '{"inputs":[],"removed":true,"runs":["r"]}'),
    (
        c.RunRerun(
            run_id="x",
            run="r",
            generation=2,
            status=RunStatus.RUNNING,
            started=True,
            rerun_of=1,
            stage="b",
            runs=("b",),
            keeps=("a",),
        ),
        (
            '{"ended":[],"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"generation":2,"keeps":["a"],"rerun_of":1,'
            '"row":null,"run":"r","run_id":"x","runs":["b"],"stage":"b","started":true,"status":"running",'
            '"terminated":false}'
        ),
    ),
    (
        c.RunStopped(
            status=RunStatus.CANCELLED, changed=True, follow_up=c.FollowUp(runs=("k",), jobs=("w/a",))
        ),
        '{"changed":true,"follow_up":{"deliveries":false,"jobs":["w/a"],"rates":[],"runs":["k"],"topics":[]},"status":"cancelled"}',
    ),
    (
        c.RunsAdmitted(admitted=2, next='["n","k"]', more=True),
        (
            '{"admitted":2,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"more":true,"next":"[\\"n\\",'
            '\\"k\\"]","wakes_at":[]}'
        ),
    ),
    (
        c.JobsAdmitted(admitted=2, wakes_at=(5,)),
        '{"admitted":2,"more":false,"next":null,"wakes_at":[5]}',
    ),
    (
        c.RunsExpired(expired=2),
        '{"expired":2,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"more":false}',
    ),
    (
        c.JobsClaimed(attempts=(ATTEMPT,)),
        (
            '{"attempts":[{"attempt":1,"definition":"w@1","epoch":2,"input":"1","item":null,"job":"r.1",'
            '"kind":"expand_map","lost_attempts":0,"max_attempts":3,"node":"n","queue":"q","run":"r",'
            '"total_until":null}],"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]}}'
        ),
    ),
    (
        c.JobClaimed(attempt=None, ignored="not_due", retry_after=5),
        (
            '{"attempt":null,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"ignored":"not_due",'
            '"retry_after":5}'
        ),
    ),
    (
        c.JobSettled(status="settled", run_status=RunStatus.RUNNING, retry_at=5),
        (
            '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"more":false,"next":null,"retry_at":5,'
            '"row":null,"run_status":"running","status":"settled"}'
        ),
    ),
    (
        c.RunPaused(status=RunStatus.PAUSED, changed=True),
        '{"changed":true,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"status":"paused"}',
    ),
    (c.RunAnnotated(run="r", generation=1, stored=2), '{"generation":1,"run":"r","stored":2}'),
    (
        c.JobRecorded(
            status="recorded",
            rows=(HistoryRow(run="r", number=4, type="timer.fired", at=7, data='{"call":"1"}'),),
            run_status=RunStatus.RUNNING,
        ),
        (
            '{"failure":null,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"rows":[{"at":7,'
            '"data":"{\\"call\\":\\"1\\"}","epoch":null,"item":null,"node":null,"number":4,"payload":null,"run":"r",'
            '"type":"timer.fired"}],"run_status":"running","status":"recorded"}'
        ),
    ),
    (
        c.RunSignalled(run="r", number=4, status=RunStatus.RUNNING),
        '{"number":4,"run":"r","status":"running"}',
    ),
    (
        c.RunUpdated(run="r", number=4, status=RunStatus.RUNNING),
        '{"number":4,"run":"r","status":"running"}',
    ),
    (
        c.JobReleased(status="fenced"),
        '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"status":"fenced"}',
    ),
    (c.JobsHeld(lost=("r.1",)), '{"lost":["r.1"]}'),
    (
        c.JobsWoken(woken=3),
        '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"woken":3}',
    ),
    (c.UnresponsiveReaped(freed=2, dead=1), '{"dead":1,"freed":2}'),
    (
        c.JobExecuted(status="ignored", reason="leased"),
        (
            '{"acknowledge":true,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"reason":"leased",'
            '"retry_after":null,"status":"ignored"}'
        ),
    ),
    (c.SessionOpened(session="s", expires_at=5), '{"expires_at":5,"session":"s"}'),
    (c.SessionRenewed(expires_at=5), '{"expires_at":5}'),
    (c.LeasesReaped(sessions=1, freed=2, dead=3), '{"dead":3,"freed":2,"sessions":1}'),
    (c.LeaderAcquired(taken=False, expires_at=5), '{"expires_at":5,"taken":false}'),
    (c.SinkRegistered(sink="s", since=5, created=True), '{"created":true,"since":5,"sink":"s"}'),
    (c.SinkRemoved(removed=True), '{"removed":true}'),
    (
        c.OutboxFlushed(
            registration="k",
            holder="h",
            until=9,
            since=5,
            streams=(c.StreamLease(run="r", after=1, head_row=3),),
        ),
        (
            '{"failing":false,"holder":"h","registration":"k","since":5,'
            '"streams":[{"after":1,"head_row":3,"run":"r","skipped_rows":null,"suspect":false}],"types":[],"until":9}'
        ),
    ),
    (
        c.OutboxBatch(
            registration="k", number=1, since=5, streams=(c.StreamRange(run="r", after=1, last=3),)
        ),
        (
            '{"number":1,"passed_over":0,"registration":"k","since":5,"streams":[{"after":1,"last":3,"run":"r",'
            '"skipped_rows":null}],"types":[]}'
        ),
    ),
    (c.OutboxSettled(fenced=("r",)), '{"dead_lettered":[],"fenced":["r"],"retry_at":null}'),
    (
        c.OutboxSwept(healed=1, checked=2, next=None, hurry=False),
        '{"checked":2,"healed":1,"hurry":false,"next":null,"unknown":[]}',
    ),
    (c.DeadLettersReplayed(replayed=1, more=False), '{"more":false,"replayed":1}'),
    (
        c.ScheduleStored(schedule="s", created=True, changed=True, next_at=5),
        '{"changed":true,"created":true,"next_at":5,"schedule":"s"}',
    ),
    (
        c.SchedulesFired(runs=("s/1",), skipped=1, missed=2, next_at=5, more=True),
        (
            '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"missed":2,"more":true,"next_at":5,'
            '"runs":["s/1"],"skipped":1}'
        ),
    ),
    (
        c.ScheduleStarted(run_id=None, skipped_for="x"),
        '{"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"run_id":null,"skipped_for":"x"}',
    ),
    (
        c.ScheduleBackfilled(runs=("s/1",), existing=1),
        '{"existing":1,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"runs":["s/1"]}',
    ),
    (c.ScheduleRemoved(removed=True), '{"removed":true}'),
    (
        c.SchedulesReplanned(replanned=1, moved=("s",), next="k"),
        '{"moved":["s"],"next":"k","replanned":1}',
    ),
    (c.CredentialCreated(id="a", created=True), '{"created":true,"id":"a"}'),
    (c.CredentialRotated(id="a", previous_until=7), '{"id":"a","previous_until":7}'),
    (c.CredentialRevoked(id="a", revoked=False), '{"id":"a","revoked":false}'),
    (c.CredentialsTouched(touched=2), '{"touched":2}'),
    (c.BrowserSessionCreated(id="a", ends_at=7, deleted=1), '{"deleted":1,"ends_at":7,"id":"a"}'),
    (c.BrowserSessionsDeleted(deleted=2), '{"deleted":2}'),
    (c.BrowserSessionsTouched(touched=2), '{"touched":2}'),
    (c.WorkflowsRegistered(registered=2), '{"registered":2}'),
    (c.NamespaceCreated(created=True), '{"created":true}'),
    (c.NamespaceDeleted(deleted=False), '{"deleted":false}'),
    (
        c.LimitStored(name="run:k", changed=True),
        (
            '{"changed":true,"follow_up":{"deliveries":false,"jobs":[],"rates":[],"runs":[],"topics":[]},"name":"run:k","next":null}'
        ),
    ),
]


@pytest.mark.parametrize(("command", "text"), COMMANDS, ids=lambda one: getattr(one, "type", ""))
def test_a_command_has_this_form_and_comes_back_from_it(command: c.Command[Any], text: str) -> None:
    assert command_json(command) == text
    assert command_from(json.loads(text)) == command


@pytest.mark.parametrize(("reply", "text"), REPLIES, ids=lambda one: type(one).__name__)
def test_a_reply_has_this_form_and_comes_back_from_it(reply: object, text: str) -> None:
    assert reply_json(reply) == text
    assert reply_from(text, type(reply)) == reply


def test_every_command_and_every_reply_is_written_out_here() -> None:
    commands = {*RULES, c.JobExecute}

    assert {type(command) for command, _ in COMMANDS} == commands
    assert {type(reply) for reply, _ in REPLIES} == {reply_type(command) for command in commands}


def test_the_types_of_commands_are_a_noun_and_a_verb() -> None:
    names = [command.type for command, _ in COMMANDS]

    assert all(name.count(".") == 1 and name.replace(".", "").replace("_", "").islower() for name in names)


def test_what_has_a_default_may_be_left_out() -> None:
    assert command_from({"type": "run.cancel", "run_id": "x"}) == c.RunCancel(run_id="x")
    short: dict[str, Any] = {
        "type": "job.settle",
        "job": "r.1",
        "epoch": 1,
        "outcome": {"kind": "map_expanded", "items": []},
    }
    assert command_from(short) == c.JobSettle(job="r.1", epoch=1, outcome=c.MapExpanded(items=()))


def test_a_key_and_an_actor_are_no_part_of_what_a_command_is() -> None:
    command = c.RunCancel(run_id="x")

    assert fingerprint_text(attrs.evolve(command, actor=Actor("user", "ann"))) == fingerprint_text(command)
    assert fingerprint_text(attrs.evolve(command, idempotency_key="k")) == fingerprint_text(command)
    assert fingerprint_text(c.RunTerminate(run_id="x")) != fingerprint_text(command)
    assert fingerprint_text(attrs.evolve(command, namespace="n")) != fingerprint_text(command)


CREATE = {"type": "run.create", "workflow": "w", "input": {"inline": "1"}}
SETTLED = {"type": "job.settle", "job": "r.1", "epoch": 1}
MALFORMED: list[tuple[object, str]] = [
    (None, "object"),
    ([], "object"),
    ("run.cancel", "object"),
    ({}, "`type` is one of: .*run.cancel"),
    ({"type": "run.destroy"}, "`type` is one of"),
    ({"type": None}, "`type` is one of"),
    ({"type": ["run.cancel"]}, "`type` is one of"),
    ({"type": "run.cancel"}, r"\$\.run_id"),
    ({"type": "run.cancel", "run_id": "x", "why": "y"}, "why"),
    ({"type": "run.cancel", "run_id": 5}, r"\$\.run_id"),
    ({"type": "run.cancel", "run_id": None}, r"\$\.run_id"),
    ({"type": "job.release", "job": "r.1", "epoch": True}, r"\$\.epoch"),
    ({"type": "job.release", "job": "r.1", "epoch": 1.0}, r"\$\.epoch"),
    ({"type": "job.release", "job": "r.1", "epoch": "1"}, r"\$\.epoch"),
    ({**CREATE, "if_exists": "replace"}, r"\$\.if_exists"),
    ({**CREATE, "input": "1"}, r"\$\.input"),
    ({**CREATE, "input": {}}, r"\$\.input"),
    ({**CREATE, "input": {"inline": "1", "blob": "k"}}, r"\$\.input"),
    ({**CREATE, "input": {"inline": 1}}, r"\$\.input\.inline"),
    ({**SETTLED, "outcome": {"kind": "Won"}}, r"\$\.outcome"),
    ({**SETTLED, "outcome": 5}, r"\$\.outcome"),
    ({**SETTLED, "outcome": {"kind": "map_expanded", "items": {}}}, r"\$\.outcome\.items"),
    ({**SETTLED, "outcome": {"kind": "map_expanded", "items": [{"inline": "1"}, 2]}}, r"items\[1\]"),
    (
        {**SETTLED, "outcome": {"kind": "failed", "failure": {"code": "c", "message": "m", "retryable": 1}}},
        r"\$\.outcome\.failure\.retryable",
    ),
    ({"type": "job.heartbeat", "attempts": "r.1"}, r"\$\.attempts"),
    (
        {"type": "job.claim_one", "session": "s", "job": "r.1", "epoch": 0, "definitions": "w@1"},
        "definitions",
    ),
]


@pytest.mark.parametrize(("data", "where"), MALFORMED, ids=str)
def test_what_is_no_command_is_refused_with_its_fault(data: object, where: str) -> None:
    with pytest.raises(InvalidCommandError, match=where):
        command_from(data)


def test_all_faults_are_named_at_once() -> None:
    definitions: list[str] = []
    lane = {"queue": "q", "definitions": definitions}
    with pytest.raises(InvalidCommandError) as caught:
        command_from({"type": "job.claim", "session": 1, "queue_claims": [lane], "limit": "x"})

    assert all(path in str(caught.value) for path in ("$.session", "$.queue_claims[0]", "$.limit"))


def test_status_and_kind_are_texts_that_must_be_known() -> None:
    ended: dict[str, object] = {
        "status": "failed",
        "changed": True,
        "follow_up": {"runs": [], "jobs": [], "deliveries": False, "rates": [], "topics": []},
    }
    assert to_data(c.RunStopped(status=RunStatus.FAILED, changed=True)) == ended
    for unfit in ("lost", 1, None):
        with pytest.raises(InvalidCommandError):
            from_data({"status": unfit, "changed": True}, c.RunStopped)
