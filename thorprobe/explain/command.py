# SPDX-License-Identifier: Apache-2.0
"""``thorprobe explain``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from thorprobe.cli import options as o


def explain(
    *,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[TEXT|FILE|-|CAUSE|TERM]",
            help="An error in quotes, a log, cubin or store, - for standard input, a cause, a term",
        ),
    ] = "",
    grid: Annotated[
        str | None, typer.Option("--grid", metavar="X,Y,Z", help="Grid, in CTAs")
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", metavar="X,Y,Z", help="Block, in threads")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="X,Y,Z", help="Launch attribute, in CTAs; 0: none"),
    ] = None,
    compiled_cluster: Annotated[
        str | None,
        typer.Option("--compiled-cluster", metavar="X,Y,Z", help="Compiled in; 0: none"),
    ] = None,
    smem: Annotated[
        int | None, typer.Option("--smem", min=0, help="Dynamic shared memory of a CTA, bytes")
    ] = None,
    static_smem: Annotated[
        int | None, typer.Option("--static-smem", min=0, help="Static shared memory, bytes")
    ] = None,
    registers: Annotated[
        int | None, typer.Option("--registers", min=0, help="Registers a thread")
    ] = None,
    max_threads: Annotated[
        int | None, typer.Option("--max-threads", min=1, help="Launch bound compiled in")
    ] = None,
    cooperative: Annotated[
        bool | None, typer.Option("--cooperative/--not-cooperative", help="Cooperative launch")
    ] = None,
    non_portable: Annotated[
        bool | None, typer.Option("--non-portable/--portable", help="Non-portable sizes allowed")
    ] = None,
    setter_limit: Annotated[
        int | None,
        typer.Option("--setter-limit", min=0, help="Dynamic bytes last set on the function"),
    ] = None,
    setter_code: Annotated[
        int | None, typer.Option("--setter-code", min=0, help="Code of the setter of these bytes")
    ] = None,
    profile: o.ProfileOption = None,
    capability: Annotated[
        str | None,
        typer.Option("--capability", metavar="X.Y", help="Compute capability, without a profile"),
    ] = None,
    sms: Annotated[
        int | None, typer.Option("--sms", min=1, help="SMs of the device or partition")
    ] = None,
    smem_optin: Annotated[
        int | None,
        typer.Option("--smem-optin", min=0, help="Most bytes of a block, as the device answers"),
    ] = None,
    max_active: Annotated[
        int | None, typer.Option("--max-active", min=0, help="cuOccupancyMaxActiveClusters")
    ] = None,
    largest_cluster: Annotated[
        int | None,
        typer.Option("--largest-cluster", min=1, help="Non-portable maximum of the device"),
    ] = None,
    resident: Annotated[
        int | None, typer.Option("--resident", min=0, help="CTAs of it that fit at once")
    ] = None,
    images: Annotated[
        str | None,
        typer.Option("--images", metavar="SM_90A,...", help="Targets in the loaded file; none"),
    ] = None,
    code: Annotated[
        int | None, typer.Option("--code", min=0, help="Code of load, query or launch")
    ] = None,
    sync_code: Annotated[
        int | None, typer.Option("--sync-code", min=0, help="Code of the synchronisation")
    ] = None,
    earlier_code: Annotated[
        int | None, typer.Option("--earlier-code", min=0, help="Code of a call before this one")
    ] = None,
    hang: Annotated[bool, typer.Option("--hang", help="It does not come back")] = False,
    waits: Annotated[
        bool, typer.Option("--waits", help="Its CTAs wait for each other without a cluster")
    ] = False,
    stage: Annotated[
        str | None,
        typer.Option("--stage", metavar="compile|host", help="Where it ended before any launch"),
    ] = None,
    observed_cluster: Annotated[
        int | None, typer.Option("--observed-cluster", min=0, help="Cluster that the kernel saw")
    ] = None,
    observed_ctas: Annotated[
        int | None, typer.Option("--observed-ctas", min=0, help="CTAs that ran")
    ] = None,
    wrong_rows: Annotated[
        int | None, typer.Option("--wrong-rows", min=0, help="Rows of the result that are wrong")
    ] = None,
    ptx_version: Annotated[
        str | None, typer.Option("--ptx-version", metavar="X.Y", help="CUDA that wrote the PTX")
    ] = None,
    driver_version: Annotated[
        str | None, typer.Option("--driver-version", metavar="X.Y", help="CUDA of the driver")
    ] = None,
    cubin: Annotated[
        Path | None, typer.Option("--cubin", metavar="FILE", help="Cubin that holds the kernel")
    ] = None,
    kernel: Annotated[
        str, typer.Option("--kernel", metavar="NAME", help="Kernel of the cubin")
    ] = "",
    form: o.FormatOption = o.Format.TEXT,
    json: o.JsonOption = False,
    output: o.OutputOption = None,
) -> None:
    """Explain one launch from what you have: an error, a log, its numbers, a cubin, a store.

    One cause where the facts settle it, else the candidates and the fact that decides. Nothing is
    launched. A CAUSE or a TERM prints what is known of it.
    """
    from thorprobe.cli.output import show_evidence
    from thorprobe.cli.session import public
    from thorprobe.explain.answer import explain as ask
    from thorprobe.explain.asked import Asked

    asked = Asked(
        grid=grid,
        block=block,
        cluster=cluster,
        compiled_cluster=compiled_cluster,
        smem=smem,
        static_smem=static_smem,
        registers=registers,
        max_threads=max_threads,
        cooperative=cooperative,
        non_portable=non_portable,
        setter_limit=setter_limit,
        setter_code=setter_code,
        profile=profile,
        capability=capability,
        sms=sms,
        smem_optin=smem_optin,
        max_active=max_active,
        largest_cluster=largest_cluster,
        resident=resident,
        images=images,
        code=code,
        sync_code=sync_code,
        earlier_code=earlier_code,
        hang=hang,
        waits=waits,
        stage=stage,
        observed_cluster=observed_cluster,
        observed_ctas=observed_ctas,
        wrong_rows=wrong_rows,
        ptx_version=ptx_version,
        driver_version=driver_version,
    )
    nothing = subject == "" and cubin is None and asked == Asked()
    if subject == "-" or (nothing and not sys.stdin.isatty()):
        subject = sys.stdin.read()
    answer = ask(subject, asked, kernel, cubin, public(sys.argv[1:]))
    show_evidence([answer], o.Format.JSON if json else form, output)
