"""kubectl's templates of -o jsonpath."""

from __future__ import annotations

import pytest

from replay.results.kubectl.jsonpath import JSONPathError, Template

_PODS = {
    "kind": "List",
    "items": [
        {
            "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "web"}},
            "spec": {"nodeName": "n1", "priority": 5},
            "status": {"phase": "Running", "ips": ["1", "2", "3"]},
        },
        {
            "metadata": {"name": "b", "labels": {}},
            "spec": {"priority": 10},
            "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]},
        },
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.kind}", "List"),
        (".kind", "List"),
        ("kind", "List"),
        ("{$.kind}: {.items[*].metadata.name}\n", "List: a b\n"),
        ("{.items[0].metadata.name}{.items[-1:].metadata.name}", "ab"),
        ("{.items[0].status.ips[0:2]} {.items[0].status.ips[::2]}", "1 2 1 3"),
        ("{.items[0].status.ips[0,2]}", "1 3"),
        ("{.items[0]['metadata','status']['name','phase']}", "a Running"),
        ("{.items[0].metadata.labels.app\\.kubernetes\\.io/name}", "web"),
        ("{.items[0].metadata.labels['app.kubernetes.io/name']}", "web"),
        ("{.items[*].metadata.labels}", '{"app.kubernetes.io/name":"web"} {}'),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.spec.nodeName}{"\\n"}{end}', "a\tn1\nb\t\n"),
        ("{range .items[*]}[{.metadata.name}, {.spec.priority}] {end}", "[a, 5] [b, 10] "),
        ('{.items[?(@.status.phase=="Running")].metadata.name}', "a"),
        ("{.items[?(@.status.phase != 'Running')].metadata.name}", "b"),
        ("{.items[?(@.spec.priority > 5)].metadata.name}", "b"),
        ("{.items[?(@.spec.nodeName)].metadata.name}", "a"),
        ("{..name}", "a b"),
        ("{.items[1].status.conditions[?(@.type=='Ready')].status}", "False"),
        ("{range .items[*]}{range .status.ips[*]}{@}{end}{end}", "123"),
        ("{.absent.too}{.items[7]}", ""),
        ("{.items[*].metadata.*}", 'a {"app.kubernetes.io/name":"web"} b {}'),
    ],
)
def test_a_template_prints_what_kubectl_prints(template: str, text: str) -> None:
    """Text, paths, ranges, filters, slices, unions, recursion; an absent field is empty."""
    assert Template(template).render(_PODS) == text


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{.a", "'}' is missing"),
        ("{range .items[*]}{.a}", "{range} has no {end}, at character 1"),
        ("{.a}{end}", "{end} has no {range}, at character 5"),
        ("{.a[}", "'[' wants a number"),
        ("{.a[?(@.b==)]}", "a path begins with"),
        ("{a}", "a path begins with"),
        ("{.a[0:2:0]}", "is not positive"),
    ],
)
def test_a_template_that_cannot_be_read_is_refused_with_the_place(
    template: str, problem: str
) -> None:
    """Before anything of the run is read."""
    with pytest.raises(JSONPathError) as raised:
        Template(template)
    assert problem in str(raised.value)
