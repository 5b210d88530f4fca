# SPDX-License-Identifier: Apache-2.0
"""``thorprobe cluster-sweep``."""

from typing import Annotated, Any

import typer

from thorprobe.cli import options as o
from thorprobe.cli.session import Session, progress
from thorprobe.cli.shipped import PREFIX, of_option


def cluster_sweep(
    *,
    sizes: Annotated[
        str, typer.Option("--sizes", metavar="LIST", help="Cluster sizes, `4,8,16` or `1-16`")
    ] = "1-16",
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="NAME|shipped:FILE",
            help="Only this kernel: trivial, topk, or those of a wheel, library or cubin",
        ),
    ] = None,
    compiled_dims: o.CompiledOption = False,
    device: o.DeviceOption = None,
    profile: o.ProfileOption = None,
    replay: o.ReplayOption = None,
    partition: o.PartitionOption = "",
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
    store: o.StoreOption = None,
    resume: o.ResumeOption = None,
    no_progress: o.NoProgressOption = False,
    fail_on: o.FailOnOption = None,
    baseline: o.BaselineOption = None,
    deadline: o.DeadlineOption = 10.0,
) -> None:
    """Find the largest cluster that launches, at six footprints, and why the next one does not.

    Asks 1 to 16 CTAs, with and without the non-portable opt-in, for a trivial kernel and a real
    top-k kernel: the driver's potential and active clusters, the launch, and what the kernel saw.
    """
    import msgspec

    from thorprobe.cli.study import SweepStudy
    from thorprobe.driver import partition as partitions
    from thorprobe.plan import sweep

    parsed = partitions.parse(partition)
    names = tuple(dict.fromkeys(kernel or ()))
    shipped = of_option(names, lambda: progress("inspect", shown=not no_progress))
    asked = sweep.SweepOptions(
        sizes=sweep.parse_sizes(sizes),
        kernels=tuple(name for name in names if not name.startswith(PREFIX)),
        partition=str(parsed) if parsed else "",
        compiled=compiled_dims,
    )
    sweep.plan(asked)  # A bad kernel name is found before a device is touched.

    def question(found: Any) -> SweepStudy:
        held = shipped.kernels(found) if shipped else ()
        return SweepStudy(msgspec.structs.replace(asked, shipped=held))

    session = Session(
        device=device,
        profile=profile,
        replay=replay,
        partition=asked.partition,
        form=o.Format.JSON if json else form,
        output=output,
        store=store,
        resume=resume,
        progress=not no_progress,
        fail_on=fail_on or (),
        baseline=baseline,
        deadline_s=deadline,
        shipped=shipped,
    )
    raise typer.Exit(int(session.run(question, asked.partition)))
