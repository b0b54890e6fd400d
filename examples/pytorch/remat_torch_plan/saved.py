# SPDX-License-Identifier: BSL-1.0
"""Plans in a file, so that a step is planned once: `PlannedStep.save` writes one, `plan(…, plan=file)` reads it.

The file has each plan's schedule, with all of its graph that decides a plan; the options that the plans keep to; the versions of
PyTorch and of the device; and a digest of it all. Whoever reads it compares its own graph, and measures its sizes again: a
schedule that would take more than its budget here is refused. Of a plan by regions it has each graph once, with its ways, and the calls
in their order; such a step runs once, to measure it, where the file is read.
"""
import hashlib
import json
import re
from dataclasses import asdict

import torch

from .errors import PlanError
from .files import write_whole
from .link import Link
from .measure import measure as measure_operations
from .planner import Schedule, is_fraction, parse_budget
from .regions import RegionsPlan
from .same_step import describe, difference, digests, first_difference

_FORMAT = "remat_torch_plan, plans, version 2"
_MEASURED = ("time_us", "workspace_bytes")  # of an operation: they may differ where the plan is used


def save_plans(path, plans, options):
    """Writes the plans, made with these options. The file is there whole, or not at all."""
    if not plans:
        raise PlanError(f"{path}: the step has no plan yet; expected one that was planned with inputs, or has run")
    content = {"versions": _versions(plans[0].device), "options": _options(options)}
    if isinstance(plans[0], RegionsPlan):
        content["graphs"], content["plans"] = _regions_to_json(plans)
    else:
        content["plans"] = [_plan_to_json(plan) for plan in plans]
    text = json.dumps({"format": _FORMAT, "digest": _digest(content), **content})
    write_whole(path, text, "the plans")


class SavedPlans:
    """The plans of a file. Raises `PlanError` if it has none, or was changed or cut off."""

    def __init__(self, path):
        self.path = path
        self._taken = 0
        try:
            with open(path) as file:
                self._content = json.load(file)
        except OSError as error:
            raise PlanError(f"plan: {path} cannot be read: {error.strerror}") from error
        except ValueError:
            self._content = None
        if not isinstance(self._content, dict) or self._content.get("format") != _FORMAT:
            raise PlanError(f"plan: {path} is no file of plans; expected one that step.save(file) wrote, in this version's format")
        if self._content.pop("digest", None) != _digest({k: v for k, v in self._content.items() if k != "format"}):
            raise PlanError(f"plan: {path} was changed, or cut off, after it was written; save the plans again")

    def take(self, graph, device, options):
        """(schedule, baseline bytes, reserved bytes, whether seeded, whether materialized) of the plan for this graph; None if it has none, and had one for another.

        Raises `PlanError` with one line if versions or options differ, if no plan of the file is for this step, or if its schedule
        takes more than its budget with the sizes that tensors have here.
        """
        self._compare_settings(device, options)
        if "graphs" in self._content:
            raise PlanError(f"plan: {self.path} is for another step: one that is planned by regions, and this one is traced whole")
        items = json.loads(json.dumps(_items(graph)))
        own = digests(items)
        plans = self._content["plans"]
        found = next((p for p in plans if digests(p["items"]) == own), None)
        if found is None:
            if self._taken:
                return None
            nearest = max(plans, key=lambda p: sum(a == b for a, b in zip(digests(p["items"]), own)))
            first = first_difference(items, digests(nearest["items"]))
            here, there = (x[first] if first < len(x) else None for x in (items, nearest["items"]))
            raise PlanError(f"plan: {self.path} is for another step: {difference(here, there, 'in the file')}")
        schedule = self._schedule(graph, device, found, options)
        self._taken += 1
        return schedule, found["baseline_bytes"], found["reserved_bytes"], found["seeded"], found.get("materialized", False)

    def take_ways(self, graph, device, options):
        """The schedules of the ways of a region's graph, the unplanned one first; None if the file has no such graph. Sets its times and sizes."""
        own = digests(json.loads(json.dumps(_items(graph))))
        found = next((g for g in self._content.get("graphs", ()) if digests(g["items"]) == own), None)
        if found is None:
            return None
        _set_measured(graph, device, found["measured"], options)
        return [_schedule_of(fields) for fields in found["ways"]]

    def take_regions(self, arguments, sequence, device, options):
        """The entry of the plan by regions for arguments like these; None if it has none, and had one for others.

        arguments: `RegionsPlan.arguments`. sequence: [(name of the region, its number among the calls of that region, graph)] of all calls.
        Raises `PlanError` with one line if versions or options differ, or if no plan of the file is for this step.
        """
        self._compare_settings(device, options)
        if "graphs" not in self._content:
            raise PlanError(f"plan: {self.path} is for another step: one that is traced whole, and this one is planned by regions")
        found = next((p for p in self._content["plans"] if p["arguments"] == arguments), None)
        if found is None:
            if self._taken:
                return None
            raise PlanError(f"plan: {self.path} is for another step: it has plans for arguments {self._content['plans'][0]['arguments']}, here {arguments}")
        here = {(name, number): json.loads(json.dumps(_items(graph))) for name, number, graph in sequence}
        for name, number, graph, _ in found["calls"]:
            there = self._content["graphs"][graph]["items"]
            own = here.get((name, number), [])
            if digests(own) != digests(there):
                first = first_difference(own, digests(there))
                what = difference(*(x[first] if first < len(x) else None for x in (own, there)), "in the file") if own else "it is not called"
                raise PlanError(f"plan: {self.path} is for another step: call {number} of region '{name}': {what}")
        self._taken += 1
        return found

    def names_of_regions(self, arguments):
        """The names of the regions in the plan for arguments like these."""
        return {call[0] for p in self._content["plans"] if p.get("arguments") == arguments for call in p["calls"]}

    def _compare_settings(self, device, options):
        for what, here in (("versions", _versions(device)), ("options", _options(options))):
            there = self._content[what]
            for name in here:
                if there.get(name) != here[name]:
                    raise PlanError(f"plan: {self.path} was made with another {name}: {there.get(name)!r}, here {here[name]!r}")

    def _schedule(self, graph, device, found, options):
        _set_measured(graph, device, found["measured"], options)
        schedule = _schedule_of(found["schedule"])
        schedule.peak_bytes, schedule.host_peak_bytes = graph.peaks(schedule.steps)
        taken = schedule.peak_bytes + found["reserved_bytes"]
        if taken > schedule.budget_bytes:
            raise PlanError(
                f"plan: {self.path}: with the sizes that tensors have here its schedule takes {taken:,} bytes, and its budget is "
                f"{schedule.budget_bytes:,}; plan the step on this device"
            )
        return schedule


def _set_measured(graph, device, measured, options):
    if options.compile is not True:
        measure_operations(graph, device, with_time=False)
    for operation, (micros, workspace) in zip(graph.operations, measured, strict=True):
        operation.time_us = micros
        if options.compile is True:
            operation.workspace_bytes = workspace


def _schedule_of(fields):
    fields = dict(fields)
    fields["steps"] = [(kind, index) for kind, index in fields["steps"]]
    fields["link"] = fields["link"] and Link(**fields["link"])
    return Schedule(**fields, report=None)


def _schedule_to_json(schedule):
    return {k: v for k, v in asdict(schedule).items() if k != "report"}


def _measured(graph):
    return [(o.time_us, o.workspace_bytes) for o in graph.operations]


def _regions_to_json(plans):
    """(graphs with their ways, plans) of plans by regions."""
    offered = {}  # the ways of each graph, the unplanned one first: those that plans have taken, too, though better ones may have been found since
    for part in (part for plan in plans for part in plan.parts):
        offered.setdefault(id(part.ways), (part.ways.graph, [part.ways.unplanned, *part.ways.found]))
    for part, way in ((part, way) for plan in plans for _, part, way in plan.calls):
        offered[id(part.ways)][1].append(way)
    graphs, entries = [], []
    for graph, ways in offered.values():
        ways[:] = {id(way): way for way in ways}.values()
        graphs.append({"items": _items(graph), "measured": _measured(graph), "ways": [_schedule_to_json(way.schedule) for way in ways]})
    places = {key: i for i, key in enumerate(offered)}
    for plan in plans:
        calls = []
        for (region, number), (_, part, way) in zip(plan.choice, plan.calls, strict=True):
            own = next(i for i, w in enumerate(offered[id(part.ways)][1]) if w is way)
            calls.append((region.name, number, places[id(part.ways)], own))
        numbers = ("budget_bytes", "baseline_bytes", "predicted_bytes", "overhead", "gap")
        entries.append({"arguments": plan.arguments, "calls": calls, **{name: getattr(plan, name) for name in numbers}})
    return graphs, entries


def _plan_to_json(plan):
    return {
        "items": _items(plan.graph),
        "schedule": _schedule_to_json(plan.schedule),
        "measured": _measured(plan.graph),
        "baseline_bytes": plan.baseline_bytes,
        "reserved_bytes": plan.reserved_bytes,
        "seeded": plan.seeded,
        "materialized": plan.materialized,
    }


def _items(graph):
    """`describe(graph)`, without what is measured, the number of threads and of the GPU."""
    items = []
    for title, entry in describe(graph):
        entry = {k: v for k, v in entry.items() if k not in _MEASURED and not k.startswith("bytes of") and k != "bytes"}
        if entry.get("call"):
            entry["call"] = re.sub(r"cuda:\d+", "cuda", re.sub(r", \d+\)$", ")", entry["call"]))
        items.append((title, entry))
    return items


def _versions(device):
    return {"version of PyTorch": torch.__version__, "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"}


def _options(options):
    budget = parse_budget(options.budget, 10**12)
    return {
        "budget": f"{budget / 10**10:g} % of the unplanned step" if is_fraction(options.budget) else f"{budget} bytes",
        "host_budget": options.host_budget,
        "link": options.link is not None,
        "seeds": options.seeds,
        "compile": options.compile,
        "regions": list(options.regions) if options.regions else None,
    }


def _digest(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
