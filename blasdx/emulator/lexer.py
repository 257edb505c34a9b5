"""PTX text as tokens, and a parser's way through them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from blasdx.emulator.errors import EmulationError

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\f\v]+|//[^\n]*|/\*.*?\*/)
      | (?P<newline>\n)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
      | (?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
      | (?P<word>[A-Za-z_$%][\w$]*)
      | (?P<dot>\.[A-Za-z_0-9$]+(?:::[A-Za-z_0-9]+)*)
      | (?P<punct>[{}\[\](),;:|!+\-*/~&^<>=@?.%])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """One token and its line."""

    kind: str
    text: str
    line: int


def tokenize(text: str) -> list[Token]:
    """Split PTX text into tokens; comments and blanks vanish, line numbers stay."""
    tokens: list[Token] = []
    line, at, end = 1, 0, len(text)
    match = _TOKEN.match
    while at < end:
        found = match(text, at)
        if found is None:
            raise EmulationError(f"unexpected character {text[at]!r}", line=line)
        kind = found.lastgroup
        at = found.end()
        if kind == "newline":
            line += 1
        elif kind == "skip":
            line += found.group().count("\n") if found.group().startswith("/*") else 0
        else:
            tokens.append(Token(str(kind), found.group(), line))
    tokens.append(Token("end", "", line))
    return tokens


class TokenStream:
    """The tokens of a text, taken one after the other."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0

    @property
    def token(self) -> Token:
        """The next token; it stays."""
        return self.tokens[self.at]

    def next(self) -> Token:
        """Take the next token."""
        token = self.tokens[self.at]
        if token.kind == "end":
            raise EmulationError("unexpected end of text", line=token.line)
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        """Take the next token when it is `text`."""
        if self.token.text == text and self.token.kind not in ("string", "end"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        """Take the next token, which has to be `text`."""
        token = self.next()
        if token.text != text:
            raise EmulationError(f"expected {text!r}, found {token.text!r}", line=token.line)
        return token

    def word(self) -> str:
        """Take a name."""
        token = self.next()
        if token.kind != "word":
            raise EmulationError(f"expected a name, found {token.text!r}", line=token.line)
        return token.text

    def integer(self) -> int:
        """Take an integer with its sign."""
        negative = self.accept("-")
        token = self.next()
        if token.kind != "int":
            raise EmulationError(f"expected an integer, found {token.text!r}", line=token.line)
        value = parse_integer(token.text)
        return -value if negative else value

    def skip_line(self, line: int) -> None:
        """Go to the end of a line."""
        while self.token.kind != "end" and self.token.line == line:
            self.at += 1

    def skip_statement(self) -> None:
        """Go behind the next semicolon."""
        while not self.accept(";"):
            self.next()

    def skip_braces(self) -> None:
        """Go behind the matching brace."""
        self.expect("{")
        depth = 1
        while depth:
            text = self.next().text
            depth += (text == "{") - (text == "}")


def parse_integer(text: str) -> int:
    """An integer literal."""
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text[:2] in ("0b", "0B"):
        return int(text, 2)
    return int(text, 8) if len(text) > 1 and text[0] == "0" else int(text)
