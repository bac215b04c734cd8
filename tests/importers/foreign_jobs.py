"""Jobs of each system that hold any text, and texts that are hostile to what they are written into."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

DAG_ID = "imported"


def canary(path: Path) -> str:
    """An expression that Airflow's sandbox lets through, and that writes a file."""
    return f"macros.json.codecs.builtins.exec(\"open({str(path)!r}, 'w').close()\")"


def hostile(path: Path) -> list[str]:
    """Texts that leave whatever they are written into, and run the canary or change the value."""
    code = canary(path)
    return [
        f"{{{{ {code} }}}}",
        f"{{% endraw %}}{{{{ {code} }}}}{{% raw %}}",
        f"{{%- endraw -%}}{{% set x = {code} %}}",
        f"{{% if {code} %}}{{% endif %}}",
        f"{{{{ self._TemplateReference__context.{code} }}}}",
        f'"""\n__import__("os").system("touch {path}")\n"""',
        f"'''\n__import__('os').system('touch {path}')\n'''",
        f'")\n__import__("os").system("touch {path}")\n#',
        f"\\\n__import__('os').system('touch {path}')",
        "{# a comment #}",
        "echo ${#HOME}",
        "greeting.tony.yaml",
        "{% include 'greeting.tony.yaml' %}",
        "\u2028files: [/etc/hostname]",
        "\x85files: [/etc/hostname]",
        "\rfiles: [/etc/hostname]",
        "\nfiles: [/etc/hostname]\n",
        " | cat\n",
        "x" * 5_000,
        "\\N{DIGIT ONE}\\x41",
        "é\U0001f600\ufeff\u202e",
        "\x00",
        "\ud800",
    ]


Words = Callable[[Path, "list[str]"], "list[str]"]
"""Writes a job of a system that holds all of the texts. Returns what ``airflow tony import`` is given."""


def _next(texts: list[str], place: int) -> str:
    return texts[place % len(texts)]


def skein(folder: Path, texts: list[str]) -> list[str]:
    a, b, c = (_next(texts, n) for n in range(3))
    plain = {
        "name": a,
        "queue": b,
        "user": c,
        "node_label": a,
        "tags": [b],
        "acls": {"enable": True, "view_users": [c]},
        a: b,
        "services": {
            "worker": {"commands": [a, b], "env": {"A": b, "B": c, c: a}, "files": {"x": a}, "nodes": [b]},
            "another": {"script": c, "env": {"C": a}},
        },
    }
    return _written(folder / "spec.json", json.dumps(plain))


def tony(folder: Path, texts: list[str]) -> list[str]:
    a, b, c = (_in_xml(_next(texts, n)) for n in range(3))
    properties = {
        "tony.application.name": a,
        "tony.yarn.queue": b,
        "tony.application.tags": c,
        "tony.application.node-label": a,
        "tony.worker.instances": "1",
        "tony.worker.command": a or "true",
        "tony.ps.instances": "1",
        "tony.ps.command": f"true {b}",
        "tony.execution.envs": f"A={c}",
        f"tony.{b}": c,
    }
    lines = [
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    ]
    return _written(folder / "tony.xml", f"<configuration>{''.join(lines)}</configuration>")


def yarn_service(folder: Path, texts: list[str]) -> list[str]:
    a, b, c = (_next(texts, n) for n in range(3))
    plain = {
        "name": a,
        "queue": b,
        "description": c,
        "docker_client_config": a,
        "configuration": {"env": {"A": a, "B": b}, "properties": {a: b}},
        "components": [
            {
                "name": "worker",
                "number_of_containers": 1,
                "launch_command": f"true {c}",
                "configuration": {"env": {"C": c, a: b}, "files": [{"type": "STATIC", "src_file": b, "dest_file": c}]},
            }
        ],
    }
    return _written(folder / "service.json", json.dumps(plain))


def hbox(folder: Path, texts: list[str]) -> list[str]:
    a, b, c = (_next(texts, n) for n in range(3))
    options = {"app-type": "standalone", "app-name": a, "queue": b, "files": c, "conf": f"hbox.container.env.A={a}"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return ["hbox-submit", *words, "--", "echo", a, b, c]


def tf_yarn(folder: Path, texts: list[str]) -> list[str]:
    a, b, c = (_next(texts, n) for n in range(3))
    program = f"""
from tf_yarn.tensorflow import TaskSpec, run_on_yarn
run_on_yarn(
    experiment_fn,
    task_specs={{"chief": TaskSpec(memory="2 GiB", vcores=4)}},
    name={a!a}, queue={b!a}, env={{"A": {a!a}, "B": {c!a}}}, files={{"x": {b!a}}},
    unknown={c!a},
)
"""
    return _written(folder / "run.py", program)


def torchx(folder: Path, texts: list[str]) -> list[str]:
    a, b, c = (_next(texts, n) for n in range(3))
    role = {"name": "worker", "image": a, "entrypoint": "echo", "args": [a, b, c], "env": {"A": b, "B": c, a: b}}
    return _written(folder / "app.json", json.dumps({"name": c, "roles": [role], "metadata": {a: b}}))


SYSTEMS: Mapping[str, Words] = {
    "skein": skein,
    "tony": tony,
    "yarn-service": yarn_service,
    "hbox": hbox,
    "tf-yarn": tf_yarn,
    "torchx": torchx,
}


def options(words: list[str], system: str, output: Path, dag: Path) -> Namespace:
    """The arguments of ``airflow tony import``."""
    return Namespace(
        words=words,
        system=system,
        command="python train.py",
        set=None,
        output=str(output),
        dag=str(dag),
        dag_id=DAG_ID,
        force=True,
        verbose=False,
    )


def _in_xml(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(each for each in text if each in "\t\n" or (each >= " " and not 0xD800 <= ord(each) < 0xE000))


def _written(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    return [str(path)]
