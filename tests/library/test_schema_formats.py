"""The formats of JSON Schema: which texts fit them, and that they are annotations unless they are asked for."""

import pytest

from podwright.schemas.validator import SchemaValidator

DIGITS = "\uff12\uff10\uff12\uff16"
"""2026 in full-width digits."""
UUID = "2eb8aa08-aa98-11ea-b4aa-73b441d16380"
FORMATS: dict[str, tuple[list[str], list[str]]] = {
    # texts that fit, and texts that do not
    "date": (
        ["2026-02-28", "2024-02-29"],
        ["2026-02-30", "05.01.2026", "", "tomorrow", "2026-2-3", "20260203", "2026-02-28\n", "2026-W01-1",
         f"{DIGITS}-02-03", "0000-01-01", "2026-02-28T00:00:00Z", "1735689600"],
    ),
    "time": (
        ["12:00:00Z", "12:00:00.123+05:30", "23:59:59z", "00:00:00-00:00"],
        ["12:00:00", "24:00:00Z", "12:00Z", "12:00:60Z", "1 pm", "12:00:00+24:00", "12:60:00Z", "", "12:00:00Z\n"],
    ),
    "date-time": (
        ["2026-01-05T10:00:00Z", "2026-01-05t10:00:00.123456789z", "2026-01-05T10:00:00-08:00"],
        ["1735689600", "1735689600.5", "2026-01-05", "2026-01-05T10:00:00", "2026-01-05 10:00:00Z",
         "2026-02-30T10:00:00Z", "2026-01-05T10:00Z", "tomorrow", "", f"{DIGITS}-01-05T10:00:00Z"],
    ),
    "duration": (
        ["P1D", "PT1H", "P1Y2M3DT4H5M6S", "P2W", "PT0S", "P1YT1H"],
        ["P", "PT", "1D", "P1YT", "P2D1Y", "P1Y2W", "P2S", "PT1D", "P1", "", "P1.5D", "-P1D", "1:00:00", "3600"],
    ),
    "email": (
        ["a@b", "joe.bloggs@example.com", "te~st@example.com", '"joe bloggs"@example.com', '"joe@bloggs"@example.com',
         "a@[127.0.0.1]", "a@[IPv6:::1]", "a+b@x-y.org"],
        ["", "a", "@b", "a@", "a b@c.d", ".test@example.com", "test.@example.com", "te..st@example.com",
         "a@invalid=domain.com", "a@[127.0.0.300]", "a@[IPv6:x]", "u@a.org, v@b.org", "a@b@c", "Joe <a@b.c>", "a@b.c\n",
         "(c)a@b.c", "a@-b.c", "jörg@example.com", "a" * 300 + "@b.c"],
    ),
    "hostname": (
        ["www.example.com", "xn--4gbwdl.xn--wgbh1c", "localhost", "1host", "a" * 63],
        ["", "-a", "a-", "a_b", "a..b", "a.", "a" * 64, ".".join(["a" * 60] * 5), "a b", "example.com\n",
         "bücher.example"],
    ),
    "ipv4": (["127.0.0.1"], ["127.0.0", "1.2.3.256", "01.2.3.4", "", "::1", f"{DIGITS}.2.3.4", "127.0.0.1/8"]),
    "ipv6": (["::1", "2001:db8::7"], ["127.0.0.1", "12345::", "fe80::1%eth0", "", "[::1]"]),
    "uri": (
        ["http://foo.bar/?baz=qux#quux", "http://foo.com/blah_(wikipedia)_blah#cite-1", "http://x/?q=Test%20it",
         "http://-.~_!$&'()*+,;=:%40:80%2f::::::@example.com", "ftp://ftp.is.co.za/rfc/rfc1808.txt",
         "ldap://[2001:db8::7]/c=GB?objectClass?one", "mailto:John.Doe@example.com",
         "news:comp.infosystems.www.servers.unix", "tel:+1-816-555-1212", "urn:oasis:names:tc:xml:4.1.2"],
        ["//foo.bar/?baz=qux", "/abc", "\\\\WINDOWS\\fileshare", "abc", "http:// shouldfail.com", ":// should fail",
         "bar,baz:foo", "https://[@example.org/test.txt", "https://example.org/foobar\\.txt", "https://x/<>", "",
         "https://x/{a}", "http://", "http://x/%zz", "http://x:99999", " http://a.b", "http://a.b\n", "http://bücher.de"],
    ),
    "uuid": (
        [UUID, UUID.upper()],
        [UUID[:-1], UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}", "", UUID.replace("2", "\uff12", 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_texts_of_a_format(name: str) -> None:
    """Those that fit by its standard do, and no others."""
    validator = SchemaValidator({"format": name}, formats=True)
    fitting, others = FORMATS[name]
    for text in fitting:
        assert validator.problem(text) is None, text
    for text in others:
        problem = validator.problem(text)
        assert problem is not None, text
        assert problem.detail == f"does not fit format '{name}'"


@pytest.mark.parametrize("name", FORMATS)
def test_values_other_than_texts_fit_each_format(name: str) -> None:
    """Whether they are texts is what `type` says."""
    validator = SchemaValidator({"format": name}, formats=True)
    for value in (5, 1735689600, None, True, ["x"], {"a": "x"}):
        assert validator.problem(value) is None


@pytest.mark.parametrize("name", ["regex", "iri", "idn-email", "colour", ""])
def test_other_formats_are_annotations(name: str) -> None:
    """Any text fits."""
    validator = SchemaValidator({"format": name}, formats=True)
    assert validator.problem("(") is None


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_annotations_unless_they_are_asked_for(name: str) -> None:
    """As JSON Schema has it."""
    assert SchemaValidator({"format": name}).problem("never") is None


def test_a_format_applies_where_it_stands() -> None:
    """The problem has the pointer of the text, and a long text is checked too."""
    schema = {"items": {"properties": {"due": {"format": "date"}}}}
    validator = SchemaValidator(schema, formats=True)
    assert validator.problem([{"due": "2026-01-05"}]) is None
    for text in ("05.01.2026", "2" * 1_000_000):
        problem = validator.problem([{"due": "2026-01-05"}, {"due": text}])
        assert problem is not None
        assert problem.pointer == "/1/due"
