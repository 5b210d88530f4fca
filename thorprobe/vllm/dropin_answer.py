# SPDX-License-Identifier: Apache-2.0
"""What happens to a call of vLLM's operators: whose selection is taken, and what is noted of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from thorprobe.errors import ThorprobeError
from thorprobe.plan.operator import COOPERATIVE
from thorprobe.plan.policy import Policy
from thorprobe.vllm.dropin_check import Check
from thorprobe.vllm.dropin_hosting import Answers, Arm, Host, Place
from thorprobe.vllm.dropin_ladder import Fit, Ladder, fit
from thorprobe.vllm.dropin_log import Answered, Speaker
from thorprobe.vllm.dropin_route import Route, Routes

if TYPE_CHECKING:
    from torch import Tensor

Arguments = tuple["Tensor", "Tensor", "Tensor", "Tensor", int, int]
"""Of the operators: logits, lengths, output, workspace, k, max_seq_len."""

Upstream = Callable[..., None]
"""vLLM's own operator, which takes them."""

LATE = "first called inside a capture, where the device cannot be asked"


class DropIn:
    """Answers the calls of both operators in one process, in one mode."""

    def __init__(
        self, mode: str, policy: Policy, host: Host, ladder: Ladder, speaker: Speaker
    ) -> None:
        """Take the mode, the version's arms, where calls arrive, what selects, and who tells."""
        self.mode = mode
        self.policy = policy
        self.routes = Routes()
        self.check = Check()
        self._answers = Answers(host, policy)
        self._host = host
        self._ladder = ladder
        self._speaker = speaker

    def answer(  # noqa: PLR0917  the operator's own signature, and who is asked
        self,
        operator: str,
        upstream: Upstream,
        logits: "Tensor",
        lengths: "Tensor",
        output: "Tensor",
        workspace: "Tensor",
        k: int,
        max_seq_len: int,
    ) -> None:
        """Fill ``output`` int32 [rows, k] as the operator does.

        Raises what vLLM's operator raises, and RuntimeError where neither can select.
        """
        vllm: Arguments = (logits, lengths, output, workspace, k, max_seq_len)
        try:
            capturing = self._host.capturing()
            route = self._route(operator, vllm)
        except Exception as error:  # noqa: BLE001  What is not understood stays vLLM's.
            self._speaker.tell(
                f"{operator} could not be looked at and stays vLLM's: {_told(error)}", warning=True
            )
            upstream(*vllm)
            return
        route.calls += 1
        if capturing:
            route.captured += 1
        if route.answered == "ladder":
            try:
                if route.settled:
                    self._ladder(logits, lengths, output, k, route.fit, route.workspace)
                else:
                    self._first(route, vllm, output, capturing=capturing)
                if self.mode == "check":
                    self.check.skip()
            except Exception as error:  # noqa: BLE001  The ladder may not break vLLM.
                self._instead(route, upstream, vllm, error, capturing=capturing)
        elif route.answered == "both":
            self._both(route, upstream, vllm, capturing=capturing)
        else:
            if self.mode == "report" and not route.settled and not capturing:
                self._foretell(route, vllm)
            self._vllm(route, upstream, vllm, capturing=capturing)

    def _route(self, operator: str, vllm: Arguments) -> Route:
        """Return the answer to this shape at this place, decided where it is new to the thread.

        Types, strides and what else would not suit are looked at where it is decided. After that
        the ladder itself refuses what it cannot serve, at each call.
        """
        logits, lengths, output, _, k, bound = vllm
        shape = logits.shape
        limit = None if operator == COOPERATIVE or bound >= shape[1] else bound
        place = self._host.place(logits)
        key = operator, place, shape, lengths.dim(), k, limit
        routes = self.routes.here()
        route = routes.get(key)
        if route is None:
            found = fit(logits, lengths, output, k, limit)
            route = self._decided(operator, place, logits, k, found)
            if route.fall == LATE:
                # Decided anew at the next call that the device can be asked about.
                return routes.setdefault((LATE, *key), route)
            routes[key] = route
        return route

    def _decided(self, operator: str, place: Place, logits: "Tensor", k: int, found: Fit) -> Route:
        """Decide who answers calls of a shape."""
        rows, columns = logits.shape[0], logits.shape[1]
        arm = self._answers.arm(place, rows) if operator == COOPERATIVE else Arm(cluster=1)
        hosted, unhosted, fall = self._hosted(place, arm)
        answered: Answered = "vllm"
        if self.mode == "always":
            # Whether vLLM's arm is hosted matters only where the ladder cannot answer.
            answered, fall = "ladder", ""
        elif self.mode in {"fallback", "check"} and hosted is False:
            answered = "ladder"
        elif self.mode == "check":
            answered = "both"
        if answered != "vllm" and found.refusal:
            answered, fall = "vllm", f"the ladder does not serve it: {found.refusal}"
        route = Route(
            operator=operator,
            place=place,
            num_rows=rows,
            columns=columns,
            k=k,
            arm=arm.name,
            hosted=hosted,
            unhosted=unhosted,
            answered=answered,
            fit=found,
            fall=fall,
        )
        self._say(route, place)
        return route

    def _hosted(self, place: Place, arm: Arm) -> tuple[bool | None, str, str]:
        """Return whether an arm is hosted, the driver's words where not, why it is not known."""
        if not arm.dynamic_smem:
            return None, "", ""
        answer = self._answers.hosted(place, arm)
        if answer is None:
            return None, "", LATE
        if answer.unknown:
            return None, "", answer.told
        return answer.max_active > 0, "" if answer.max_active else answer.told, ""

    def _say(self, route: Route, place: Place) -> None:
        """Tell once where the device refuses vLLM's arm, and once each other reason."""
        if route.unhosted:
            name = self._answers.device(place)[0] + (", partition" if place[1] else "")
            does = {
                "fallback": "thorprobe's ladder selects",
                "always": "thorprobe's ladder selects, as everywhere",
                "check": "thorprobe's ladder selects, with nothing to compare",
                "report": "vLLM's operator is called all the same",
            }[self.mode]
            if route.answered == "vllm" and self.mode != "report":
                does = "vLLM's operator is called all the same"
            self._speaker.tell(
                f"{route.operator} with {route.arm} cannot launch on {name} "
                f"({route.unhosted}): {does}",
                warning=True,
            )
        if route.fall:
            self._speaker.tell(f"{route.operator} stays vLLM's: {route.fall}", warning=True)

    def _vllm(self, route: Route, upstream: Upstream, vllm: Arguments, *, capturing: bool) -> None:
        try:
            upstream(*vllm)
        except RuntimeError as error:
            reason = f"vLLM's operator raised: {_told(error)}"
            self.routes.fell(route, "none", reason, captured=capturing)
            raise

    def _instead(
        self,
        route: Route,
        upstream: Upstream,
        vllm: Arguments,
        error: Exception,
        *,
        capturing: bool,
    ) -> None:
        """Let vLLM's operator answer what the ladder did not, unless it cannot launch."""
        late = capturing and isinstance(error, ThorprobeError)
        fall = LATE if late else f"the ladder does not serve it: {_told(error)}"
        lost = route.hosted is False
        self.routes.fell(route, "none" if lost else "vllm", fall, captured=capturing)
        if lost:
            raise RuntimeError(
                f"{route.operator} with {route.arm} cannot launch here ({route.unhosted}), and "
                f"thorprobe's ladder does not take its place: {fall}"
            ) from error
        self._speaker.tell(f"{route.operator} stays vLLM's: {fall}", warning=True)
        upstream(*vllm)

    def _both(self, route: Route, upstream: Upstream, vllm: Arguments, *, capturing: bool) -> None:
        self._vllm(route, upstream, vllm, capturing=capturing)
        logits, lengths, output, _, k, _ = vllm
        try:
            mine = output.new_empty(output.shape)
            if route.settled:
                self._ladder(logits, lengths, mine, k, route.fit, route.workspace)
            else:
                self._first(route, vllm, mine, capturing=capturing)
            if route.fit.columns:
                logits = logits[:, : route.fit.columns]
            self.check.compare(route.operator, logits, lengths, output, mine, capturing=capturing)
        except Exception as error:  # noqa: BLE001  vLLM's selection is there, and stays.
            self.check.skip()
            fall = f"not compared: {_told(error)}"
            self.routes.fell(route, "vllm", fall, captured=capturing)

    def _first(self, route: Route, vllm: Arguments, output: "Tensor", *, capturing: bool) -> None:
        """Select for the first time, and note which rung does; a capture settles nothing."""
        logits, lengths, _, _, k, _ = vllm
        if not capturing:
            self._ladder.ready(route.place, logits, k)
        ran = self._ladder.first(logits, lengths, output, k, route.fit)
        route.rung = ran.rung
        if not capturing:
            route.workspace = self._ladder.keep(ran.rung, logits, k)
            route.settled = True
        if ran.rung == "torch" and ran.why:
            self._speaker.tell(
                f"the ladder's kernels do not run here, torch's own sort selects: {ran.why[-1]}",
                warning=True,
            )

    def _foretell(self, route: Route, vllm: Arguments) -> None:
        """Find out once which rung would have run, where only that is asked."""
        route.settled = True
        if route.fit.refusal:
            route.fall = f"the ladder would not serve it: {route.fit.refusal}"
            return
        try:
            route.rung = self._ladder.would(vllm[0], vllm[1], vllm[4], route.fit).rung
        except Exception as error:  # noqa: BLE001  Nothing here may keep vLLM from its own call.
            route.fall = f"the ladder would not serve it: {_told(error)}"


def _told(error: BaseException) -> str:
    if isinstance(error, ThorprobeError):
        return error.sentence
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
