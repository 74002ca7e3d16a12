"""What the dashboards are built of: panels that ask Prometheus, variables, and faults as annotations.

Every query is written with `$job` and `$experiment`, so that one dashboard serves all jobs of a Prometheus server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as models
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models import prometheus as queries

OF = 'job=~"$job", experiment=~"$experiment"'
"""Whom a query is about."""
JOB = ("job", "label_values(torchchaos_run_info, job)")
EXPERIMENT = ("experiment", 'label_values(torchchaos_run_info{job=~"$job"}, experiment)')
SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
FOREIGN = ("auto", "auto_count", "auto_min", "id")
"""What the library gives every variable and Grafana's schema does not know."""
WIDTH = 24
HEIGHT = 8

OUTCOMES = {"PASS": (1, "green"), "UNKNOWN": (2, "yellow"), "FAIL": (3, "red")}
"""In a timeline an outcome is a number; the worst is the highest, so that it stays when several are drawn as one."""

Panel = Builder[dashboard.Panel]


@dataclass(frozen=True)
class Ask:
    """A query and how its series are called."""

    expr: str
    legend: str


def graph(title: str, about: str, unit: str, *asks: Ask, width: int = 12) -> Panel:
    """Lines over time."""
    panel = timeseries.Panel().title(title).description(about).unit(unit).datasource(SOURCE).span(width).height(HEIGHT)
    panel.fill_opacity(10).show_points(models.VisibilityMode.AUTO).min(0)
    legend = common.VizLegendOptions().display_mode(models.LegendDisplayMode.LIST).show_legend(True)
    panel.legend(legend.placement(models.LegendPlacement.BOTTOM).calcs([]))
    panel.tooltip(common.VizTooltipOptions().mode(models.TooltipDisplayMode.MULTI).sort(models.SortOrder.DESCENDING))
    for target in _targets(asks):
        panel.with_target(target)
    return panel


def lanes(title: str, about: str, states: dict[str, tuple[int, str]], *asks: Ask, width: int = WIDTH) -> Panel:
    """Bands over time: `states` says which number stands for which word, and its colour."""
    panel = statetimeline.Panel().title(title).description(about).datasource(SOURCE).span(width).height(HEIGHT)
    panel.mappings([_words(states)]).merge_values(True).show_value(models.VisibilityMode.NEVER)
    panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.FIXED))
    for target in _targets(asks):
        panel.with_target(target)
    return panel


def numbers(title: str, about: str, unit: str, *asks: Ask, width: int = 6) -> Panel:
    """The newest value of each series."""
    panel = stat.Panel().title(title).description(about).unit(unit).datasource(SOURCE).span(width).height(4)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.text_mode(models.BigValueTextMode.VALUE_AND_NAME).graph_mode(models.BigValueGraphMode.NONE)
    for target in _targets(asks):
        panel.with_target(target)
    return panel


def verdicts(title: str, about: str, *asks: Ask, width: int = 6) -> Panel:
    """The newest outcome of each series, in words and colours."""
    panel = numbers(title, about, "none", *asks, width=width)
    assert isinstance(panel, stat.Panel)
    return panel.mappings([_words(OUTCOMES)]).color_mode(models.BigValueColorMode.BACKGROUND)


def bars(title: str, about: str, unit: str, *asks: Ask, width: int = 12) -> Panel:
    """The newest value of each series as a bar."""
    panel = bargauge.Panel().title(title).description(about).unit(unit).datasource(SOURCE).span(width).height(HEIGHT)
    panel.orientation(models.VizOrientation.HORIZONTAL).min(0)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    for target in _targets(asks):
        panel.with_target(target)
    return panel


def listing(title: str, about: str, ask: Ask, width: int = 12) -> Panel:
    """The newest series with their labels, a row for each."""
    panel = table.Panel().title(title).description(about).datasource(SOURCE).span(width).height(HEIGHT)
    hidden = {"Time": True, "Value": True, "__name__": True, "instance": True}
    options = {"excludeByName": hidden, "indexByName": {}, "renameByName": {}}
    panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=options))
    target = _target("A", ask).instant().format(queries.PromQueryFormat.TABLE)
    return panel.show_header(True).with_target(target)


def coded(series: str, states: dict[str, int], label: str, by: str) -> str:
    """One number from a metric that has a series for each state. `{state}` in `series` stands for the label's match."""
    matches = {f'{label}="{state}"': number for state, number in states.items()}
    parts = [f"{series.replace('{state}', match)} * {number}" for match, number in matches.items()]
    return f"max by ({by}) ({' or '.join(parts)})"


def outcome(metric: str, selector: str, by: str) -> str:
    """An outcome as its number."""
    numbers_of = {word: number for word, (number, _) in OUTCOMES.items()}
    return coded(f"{metric}{{{selector}, {{state}}}}", numbers_of, "outcome", by)


def board(
    uid: str, title: str, about: str, rows: dict[str, list[Panel]], *variables: tuple[str, str]
) -> dict[str, Any]:
    """A whole dashboard as Grafana imports it; `variables` are names with the query for their values."""
    made = builders.Dashboard(title).uid(uid).description(about).tags(["torchchaos"]).editable()
    made.time("now-30m", "now").refresh("10s").timezone("browser").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    made.with_variable(builders.DatasourceVariable("datasource").label("data source").type("prometheus"))
    for name, query in variables:
        made.with_variable(_variable(name, query))
    for row, panels in rows.items():
        made.with_row(builders.Row(row))
        for panel in panels:
            made.with_panel(panel)
    whole = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    del whole["style"]  # Whoever looks chooses that; newer Grafana does not know it.
    for variable in whole["templating"]["list"]:
        for key in FOREIGN:
            variable.pop(key, None)
    return {"id": None, **whole}


def faults(selector: str) -> dict[str, Any]:
    """Faults as regions over every panel, from their start until they are over."""
    return {
        "name": "faults",
        "datasource": SOURCE.to_json(),
        "enable": True,
        "iconColor": "red",
        "expr": f"sum by (experiment, fault, target) (torchchaos_fault_active{{{selector}}}) > 0",
        "step": "1s",
        "titleFormat": "{{fault}}",
        "textFormat": "{{target}} in {{experiment}}",
        "tagKeys": "fault,target",
    }


def _variable(name: str, query: str) -> builders.QueryVariable:
    everything = dashboard.VariableOption(selected=True, text="All", value="$__all")
    variable = builders.QueryVariable(name).label(name).datasource(SOURCE).query(query).current(everything)
    variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    return variable.multi(True).include_all(True).all_value(".*")


def _words(states: dict[str, tuple[int, str]]) -> dashboard.ValueMap:
    return dashboard.ValueMap(
        {
            str(number): dashboard.ValueMappingResult(text=word, color=color, index=index)
            for index, (word, (number, color)) in enumerate(states.items())
        }
    )


def _targets(asks: tuple[Ask, ...]) -> list[prometheus.Dataquery]:
    return [_target(chr(ord("A") + index), ask) for index, ask in enumerate(asks)]


def _target(letter: str, ask: Ask) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(ask.expr).legend_format(ask.legend).ref_id(letter)
