#include "diagnose/reading/python_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace millrace::diagnose {
namespace {

/// "12", "none", "several", or "no such function".
std::string line_of(const PythonSource& source, std::string_view function, int begins, std::string_view name = "item") {
    const auto scope = source.scope(function, begins);
    if (!scope) return "no such function";
    const PythonSource::Found found = source.calls(*scope, name);
    if (found.calls == PythonSource::Calls::kNone) return "none";
    return found.calls == PythonSource::Calls::kSeveralLines ? "several" : fmt::format("{}", found.line);
}

std::string line_in_module(std::string_view text, std::string_view name = "item") {
    const PythonSource source(text);
    return source.sound() ? line_of(source, "<module>", 0, name) : "broken";
}

TEST(PythonSource, TheOnlyCallOfANameHasALine) {
    EXPECT_EQ(line_in_module("a = 1\nb = loss.item()\n"), "2");
    EXPECT_EQ(line_in_module("b = loss.item()"), "1");
    EXPECT_EQ(line_in_module("\n\n  \t\n# item()\nitem (\n3)\n"), "5");
    EXPECT_EQ(line_in_module("a = 1; b = loss.item()\n"), "1");
    EXPECT_EQ(line_in_module("b = (loss\n     .item\n     (\n))\n"), "2");
    EXPECT_EQ(line_in_module("b = loss \\\n  .item \\\n  ()\n"), "2");
    EXPECT_EQ(line_in_module("x(\n  y(\n    loss.item()))\n"), "3");
    EXPECT_EQ(line_in_module("if a.item() > b.item(): pass\n"), "1");
    EXPECT_EQ(line_in_module("größe(1)\n", "größe"), "1");
    const PythonSource source("loss.item()");
    EXPECT_EQ(line_of(source, "<module>", 1), "1");
}

TEST(PythonSource, CallsOnSeveralLinesOrNoneAreNotALine) {
    EXPECT_EQ(line_in_module("a.item()\nb.item()\n"), "several");
    EXPECT_EQ(line_in_module("a.item()\nb()\nc.item()\nd.item()"), "several");
    EXPECT_EQ(line_in_module(""), "none");
    EXPECT_EQ(line_in_module("\n"), "none");
    EXPECT_EQ(line_in_module("item = a.item\nitems()\nmy_item()\nitem_()\nitem2()\nxitem()\n"), "none");
    EXPECT_EQ(line_in_module("item\n(3)\n"), "none");
    EXPECT_EQ(line_in_module("item[0](3)\n(item)(3)\nitem + (3)\n"), "none");
}

TEST(PythonSource, StringsAndCommentsAreNotCode) {
    EXPECT_EQ(line_in_module("a = 'item()'\nb = \"item()\"  # item()\nitem()\n"), "3");
    EXPECT_EQ(line_in_module("'''\nitem()\n'''\n\"\"\"\nitem() \"\" \\\"\"\"\n\"\"\"\nitem()\n"), "7");
    EXPECT_EQ(line_in_module("a = 'it\\'s item()'\nb = r'\\'; c = 'item()'\nd = '\\\\'\nitem()\n"), "broken");
    EXPECT_EQ(line_in_module("a = 'it\\'s item()'\nb = rb'\\' item()'\nd = '\\\\'\nitem()\n"), "4");
    EXPECT_EQ(line_in_module("a = 'item() \\\nitem()'\nitem()\n"), "3");
    EXPECT_EQ(line_in_module("item''\nitem'()'\n"), "none");
    EXPECT_EQ(line_in_module("x = 1.5e-3.item()\n"), "1");
}

TEST(PythonSource, FieldsOfStringsAreCode) {
    EXPECT_EQ(line_in_module("a()\nprint(f'loss {loss.item():.3f}')\n"), "2");
    EXPECT_EQ(line_in_module("f'{{item()}}'\n"), "none");
    EXPECT_EQ(line_in_module("f'{a}item(){b}'\n"), "none");
    EXPECT_EQ(line_in_module("f'{item}' (3)\n"), "none");
    EXPECT_EQ(line_in_module("f'{a!r:>{item()}} item()'\nf'{d[\"}\"]:%H:%M}' 'item()'\n"), "1");
    EXPECT_EQ(line_in_module("f'\\N{DASH} item() {a}'\nrf'\\{item()}'\n"), "2");
    EXPECT_EQ(line_in_module("f'''\n{\n  item()\n}\n'''\n"), "3");
    EXPECT_EQ(line_in_module("f'{f'{item()}'}'\n"), "1");  // since Python 3.12
    EXPECT_EQ(line_in_module("f'{x:=item()}'\n"), "none");
}

TEST(PythonSource, EveryLineEndCounts) {
    EXPECT_EQ(line_in_module("a\r\n'''\r\n'''\r\nitem()\r\n"), "4");
    EXPECT_EQ(line_in_module("a\r\rx = '\\\r\n'\ritem()"), "5");
    EXPECT_EQ(line_in_module("\xef\xbb\xbfitem()"), "1");
}

constexpr std::string_view kNested = R"(import torch
def outer(a, b=default()):
    def inner(x):
        return x.item()
    class Box(base()):
        size = width()
        def item(self): return self.read()
    run(lambda x, y=early(): x.late(), key())
    return inner(a)

@first(1)
# a remark

@second(
    2)
async def train(
        model,
        scale=3) -> dict[str, int]:
	if True:
		loss = model.item()
	return loss

def short(): return a.item()
def below(x): first_of(x); \
    last_of(x)
after()
class Empty: pass
for x in y:
    item()
)";

TEST(PythonSource, CodeBelongsToTheFunctionItStandsIn) {
    const PythonSource source(kNested);
    ASSERT_TRUE(source.sound());
    EXPECT_EQ(line_of(source, "<module>", 0), "29");
    EXPECT_EQ(line_of(source, "<module>", 1, "default"), "2");
    EXPECT_EQ(line_of(source, "<module>", 1, "outer"), "none");
    EXPECT_EQ(line_of(source, "<module>", 1, "after"), "26");
    EXPECT_EQ(line_of(source, "<module>", 1, "second"), "14");
    EXPECT_EQ(line_of(source, "outer", 2), "none");
    EXPECT_EQ(line_of(source, "outer", 2, "inner"), "9");
    EXPECT_EQ(line_of(source, "outer", 2, "base"), "5");
    EXPECT_EQ(line_of(source, "outer", 2, "default"), "none");
    EXPECT_EQ(line_of(source, "outer", 2, "early"), "8");
    EXPECT_EQ(line_of(source, "outer", 2, "late"), "none");
    EXPECT_EQ(line_of(source, "outer", 2, "key"), "8");
    EXPECT_EQ(line_of(source, "<lambda>", 8, "late"), "8");
    EXPECT_EQ(line_of(source, "<lambda>", 8, "key"), "none");
    EXPECT_EQ(line_of(source, "inner", 3), "4");
    EXPECT_EQ(line_of(source, "Box", 5, "width"), "6");
    EXPECT_EQ(line_of(source, "item", 7, "read"), "7");
    EXPECT_EQ(line_of(source, "train", 11), "20");
    EXPECT_EQ(line_of(source, "short", 23), "23");
    EXPECT_EQ(line_of(source, "below", 24, "last_of"), "25");
    EXPECT_EQ(line_of(source, "below", 24, "after"), "none");
    EXPECT_TRUE(source.defines("Empty"));
    EXPECT_FALSE(source.defines("default"));
}

TEST(PythonSource, AFunctionThatBeginsElsewhereIsNotKnown) {
    const PythonSource source(kNested);
    for (const int line : {-7, 0, 1, 3, 4, 1'000'003}) EXPECT_EQ(line_of(source, "outer", line), "no such function") << line;
    EXPECT_EQ(line_of(source, "train", 14), "no such function");
    EXPECT_EQ(line_of(source, "train", 16), "no such function");
    EXPECT_EQ(line_of(source, "<module>", 2), "no such function");
    EXPECT_EQ(line_of(source, "<listcomp>", 2), "no such function");
    EXPECT_EQ(line_of(PythonSource("f(lambda: a(), lambda: b())"), "<lambda>", 1), "no such function");
}

TEST(PythonSource, LambdasEndWhereTheirExpressionDoes) {
    const PythonSource source("a = lambda x=lambda: one(): two(x if y else {3: x[4:five()]})\nsix()\n");
    EXPECT_EQ(line_of(source, "<module>", 1, "six"), "2");
    for (const char* name : {"one", "two", "five"}) EXPECT_EQ(line_of(source, "<module>", 1, name), "none") << name;
    EXPECT_EQ(line_in_module("x = [lambda: 1 for y in item()]"), "1");
    EXPECT_EQ(line_in_module("x = lambda: 1; item()"), "1");
    EXPECT_EQ(line_in_module("x = {1: lambda: 2, item(): 3}"), "1");
    EXPECT_EQ(line_in_module("x = [lambda: (2)][item()]"), "1");
}

TEST(PythonSource, WhatIsNoPythonSaysNothing) {
    for (const std::string_view text : {"item()\n(", "item()\n)", "item()\n(]", "item()\n'", "item()\n'''", "item()\n\"\n\"",
                                        "item()\n\\", "item()\n\\ \n", "item()\nf'", "item()\nf'{", "item()\nf'{a:",
                                        "item()\nf'{a:\n}'", "item()\nf'\\", "item()\n'\\", "item()\nf'\\N{", "item()\nf'{a]'"})
        EXPECT_EQ(line_in_module(text), "broken") << text;
    EXPECT_EQ(line_in_module(std::string_view("item()\0", 7)), "broken");
    const PythonSource source("item()\n(");
    EXPECT_FALSE(source.scope("<module>", 0));
}

TEST(PythonSource, ManyOfAnythingAreReadInLinearTime) {
    const auto repeated = [](std::string_view part) {
        std::string text;
        while (text.size() < (std::size_t{1} << 20)) text += part;
        return text;
    };
    // Some milliseconds each; quadratic time would be minutes.
    for (const std::string_view part :
         {"(",   "[{",    "'", "f'{", "f'{a:{", "\"\"\"", "lambda:",       "lambda f() ", "lambda f()=lambda:f(), ",
          "@\n", "\\\n",  "#", "\r",  "\t",     "f();",   "def f():f()\n", "class a:\n ", "\xff",
          ":",   "async "})
        EXPECT_PRED1([](const std::string& said) { return said == "broken" || said == "none"; }, line_in_module(repeated(part)))
            << part;
    EXPECT_EQ(line_in_module(repeated("(") + "item()"), "broken");
    EXPECT_EQ(line_in_module(repeated("f();") + "item()"), "1");
}

TEST(PythonSource, NamesThatALineCalls) {
    const std::string text =
        "with open('a', 'w') as out:\r\n    out.write(json.dumps(x))  # flush()\n    y = [write, f'{size(x)}']\nlog(\n    tail(3))\n";
    const std::multimap<int, std::string> calls{{1, "open"}, {2, "write"}, {2, "dumps"}, {3, "size"}, {4, "log"}, {5, "tail"}};
    EXPECT_EQ(calls_by_line(text), calls);
    EXPECT_EQ(calls_by_line("f("), (std::multimap<int, std::string>{{1, "f"}}));
    EXPECT_TRUE(calls_by_line("").empty());
}

}  // namespace
}  // namespace millrace::diagnose
