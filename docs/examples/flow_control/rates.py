"""A provider's budget of tokens for all runs, and a limit of requests for each user."""

from datetime import timedelta

from holdfast import Engine, Rate, Worker, step, workflow


@step(queue="provider", rate_limit=Rate(10, per=timedelta(minutes=1), by="user"))
def ask_provider(prompt: str) -> str:
    return f"an answer to {prompt}"


@workflow(rate=Rate(100, per=timedelta(seconds=1), name="provider", units="tokens"))
async def answer(prompt: str) -> str:
    return await ask_provider(prompt)


def main() -> None:
    prompts = {"a": "60", "b": "40", "c": "10"}
    with Engine.open("sqlite:///answers.db", workflows=[answer]).sync as engine, Worker(engine):
        runs = [
            engine.start(answer(prompt), attributes={"user": "ann", "tokens": tokens})
            for prompt, tokens in prompts.items()
        ]
        print([run.result() for run in runs])


if __name__ == "__main__":
    main()
