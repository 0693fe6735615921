#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the input is a Python
// source. Whatever it is, a line that is told has the name in it, the same is told twice, and what is no Python has nothing to
// tell.

#include <cctype>
#include <string_view>
#include <vector>

#include "diagnose/reading/python_source.h"
#include "fuzz/timeline_check.h"

namespace millrace::fuzz {

/// As Python counts them: "\n", "\r\n" and "\r" end a line.
inline std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
        lines.push_back(text.substr(0, end));
        const std::size_t mark = end == text.size() ? 0 : text.substr(end).starts_with("\r\n") ? 2 : 1;
        text.remove_prefix(end + mark);
    }
    return lines;
}

/// Words of the text that may be names.
inline std::vector<std::string_view> words_of(std::string_view text, std::size_t most) {
    std::vector<std::string_view> words;
    const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0; };
    for (std::size_t at = 0; at < text.size() && words.size() < most;) {
        std::size_t end = at;
        while (end < text.size() && is_letter(text[end])) ++end;
        if (end > at) words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

inline void read_python_bytes(std::string_view text) {
    using diagnose::PythonSource;
    const PythonSource source(text), again(text);
    MILLRACE_ASSERT(source.sound() == again.sound(), "the same text is Python once and once not");
    const std::vector<std::string_view> lines = lines_of(text);
    const std::vector<std::string_view> words = words_of(text, 64);
    const auto check = [&](PythonSource::Scope scope) {
        for (const std::string_view name : words) {
            const PythonSource::Found found = source.calls(scope, name), same = again.calls(scope, name);
            MILLRACE_ASSERT(found.calls == same.calls && found.line == same.line, "the same text has a call on two lines");
            if (found.calls != PythonSource::Calls::kOneLine) continue;
            MILLRACE_ASSERT(source.sound(), "what is no Python calls something");
            const auto line = static_cast<std::size_t>(found.line);
            MILLRACE_ASSERT(found.line > 0 && line <= lines.size(), "a call on a line that is none");
            MILLRACE_ASSERT(lines[line - 1].find(name) != std::string_view::npos, "a call on a line without its name");
        }
    };
    if (const auto module = source.scope("<module>", 0)) check(*module);
    const auto most = static_cast<int>(std::min<std::size_t>(lines.size(), 64));
    for (int line = 1; line <= most; ++line) {
        for (const std::string_view name : words)
            if (const auto scope = source.scope(name, line)) check(*scope);
        if (const auto scope = source.scope("<lambda>", line)) check(*scope);
    }
}

}  // namespace millrace::fuzz
