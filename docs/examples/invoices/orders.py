"""An order: an invoice is written, the parcel is on its way for weeks, and a letter says thank you."""

from datetime import timedelta

import attrs

from holdfast import NotReady, Pipeline, StageContext, Suspended, stage, suspend
from holdfast.testing import Effects


@attrs.frozen
class Order:
    id: str
    customer: str


effects = Effects()


class Ledger:
    """Stands for a book of invoices in a database of the shop's own, which outlives every crash."""

    def __init__(self) -> None:
        self.invoices: list[str] = []

    def add(self, customer: str, *, key: str | None = None) -> int:
        """Write an invoice, and return its number. With a key it is written once, and the number is the same."""
        return effects.happen(f"invoice for {customer}", lambda: self._write(customer), key=key)

    def _write(self, customer: str) -> int:
        self.invoices.append(customer)
        return len(self.invoices)


ledger = Ledger()


@stage
def bill(order: Order) -> int:
    return ledger.add(order.customer)


@stage
def bill_once(ctx: StageContext, order: Order) -> int:
    return ledger.add(order.customer, key=ctx.idempotency_key)


@stage.external
def send(ctx: StageContext, invoice: int) -> Suspended[int, int]:
    return suspend(invoice, check_after=timedelta(days=30))


@send.check
def sent(ctx: StageContext, invoice: int) -> int | NotReady:
    return invoice


@stage
def thank(invoice: int) -> str:
    return f"Thank you. Please pay invoice {invoice}."


orders = Pipeline("orders", input=Order).pipe(bill).pipe(sent).pipe(thank)
orders_mended = Pipeline("orders", input=Order, version="2").pipe(bill_once).pipe(sent).pipe(thank)
