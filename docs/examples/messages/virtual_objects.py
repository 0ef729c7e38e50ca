"""Accounts, each a run named after its owner: it exists from the first deposit on, and takes one change at a time."""

from dataclasses import dataclass

from holdfast import Engine, SyncEngine, Worker, continue_as_new, expose, query, update, workflow
from holdfast.errors import UpdateRejectedError
from holdfast.workflows import run_info, update_run, updates_done, wait_until


@dataclass
class Account:
    balance: int

    @query
    def cents(self) -> int:
        return self.balance

    @update
    def deposit(self, cents: int) -> int:
        self.balance += cents
        return self.balance

    @update
    def withdraw(self, cents: int) -> int:
        self.balance -= cents
        return self.balance

    @withdraw.validator
    def is_covered(self, cents: int) -> None:
        if cents > self.balance:
            raise ValueError(f"only {self.balance} cents are left")


@workflow
async def account(balance: int = 0) -> None:
    state = expose(Account(balance))
    await wait_until(lambda: run_info().should_continue_as_new and updates_done())
    return await continue_as_new(lambda: account(state.balance))


@workflow
async def transfer(payer: str, payee: str, cents: int) -> str:
    try:
        left = await update_run(payer, Account.withdraw(cents))
    except UpdateRejectedError as error:
        return str(error.__cause__)
    return f"{payer} has {left}, {payee} has {await update_run(payee, Account.deposit(cents))}"


WORKFLOWS = (account, transfer)


def use(engine: SyncEngine) -> list[str]:
    for owner, cents in (("ann", 30), ("bob", 5), ("ann", 20)):
        engine.update_with_start(account(), Account.deposit(cents), id=owner, if_active="return")
    transfers = [engine.run(transfer("ann", "bob", 40)), engine.run(transfer("ann", "bob", 40))]
    for owner in ("ann", "bob"):
        handle = engine.handle(account, owner)
        transfers.append(f"{owner}: {handle.query(Account.cents())}")
        handle.cancel()
    return transfers


def main() -> None:
    with Engine.open("sqlite:///accounts.db", workflows=WORKFLOWS).sync as engine, Worker(engine):
        print(use(engine))


if __name__ == "__main__":
    main()
