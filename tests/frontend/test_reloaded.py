"""Functions into which a tool that reloads edited files, such as IPython's `%autoreload`, puts new code."""

from tinsmith.frontend import read


def run(path, text):
    path.write_text(text, encoding="utf-8")
    names = {}
    exec(compile(text, str(path), "exec"), names)
    return names["shift"]


def test_new_code_in_the_same_function_is_read_again(tmp_path):
    path = tmp_path / "edited.py"
    shift = run(path, "def shift(v):\n    return v + 1.0\n")
    assert "v + 1.0" in read(shift).content
    shift.__code__ = run(path, "# edited\n\ndef shift(v):\n    return v + 20.0\n").__code__
    assert "v + 20.0" in read(shift).content
    assert read(shift).tree.lineno == 3
