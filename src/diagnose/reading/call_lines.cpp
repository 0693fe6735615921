#include "diagnose/reading/call_lines.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "diagnose/timeline/frames.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kMostFiles = 128;

bool is_identifier(std::string_view name) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
               static_cast<unsigned char>(c) >= 0x80;
    };
    return !name.empty() && std::ranges::all_of(name, fits);
}

/// What stands between `prefix` and the next of `ends`; empty when the text does not begin so.
std::string_view name_behind(std::string_view text, std::string_view prefix, std::string_view ends) {
    if (!text.starts_with(prefix)) return {};
    text.remove_prefix(prefix.size());
    return text.substr(0, text.find_first_of(ends));
}

/// C functions as CPython's repr writes them.
std::string_view native_name(std::string_view text) {
    for (const std::string_view prefix : {"<built-in method ", "<built-in function "})
        if (const std::string_view name = name_behind(text, prefix, " >"); !name.empty()) return name;
    for (const std::string_view prefix : {"<method '", "<slot wrapper '", "<method-wrapper '"})
        if (const std::string_view name = name_behind(text, prefix, "'"); !name.empty()) return name;
    return {};
}

/// Decorators put functions of their own between a call and what it names.
bool hands_on(const Frame& frame) {
    if (frame.native) return false;
    if (is_one_of(frame.function, "wrapper inner _wrapper _inner wrapper_fn inner_fn")) return true;
    if (!is_library(frame.file)) return is_one_of(frame.function, "wrapped _wrapped");
    // A library's private functions are not what a program calls by name.
    return frame.function.starts_with('_') || is_one_of(frame.function, "fn decorate_context decorate_autocast compile_wrapper");
}

struct Position {
    std::uint32_t stack, frame;
};
using Positions = std::vector<Position>;

/// Frames of the user's functions in Python files, by file.
std::map<std::string, Positions> positions_by_file(const std::vector<Stack>& stacks, CallLines& lines) {
    std::map<std::string, Positions> by_file;
    std::map<std::string_view, bool> libraries;
    for (std::uint32_t stack = 0; stack < stacks.size(); ++stack)
        for (std::uint32_t frame = 0; frame < stacks[stack].size(); ++frame) {
            const Frame& at = stacks[stack][frame];
            if (at.native) continue;
            const auto [library, fresh] = libraries.try_emplace(at.file, false);
            if (fresh) library->second = is_library(at.file);
            if (library->second) continue;
            if (at.file.ends_with(".py"))
                by_file[at.file].push_back({stack, frame});
            else
                lines.kept = true;
        }
    return by_file;
}

/// The source has functions of these names, but not where the trace says, or lacks most of them: it is another file, or another
/// state of it.
bool contradicts(const PythonSource& source, const std::vector<Stack>& stacks, const Positions& positions) {
    std::set<std::pair<std::string_view, int>> present, missing;
    for (const Position& at : positions) {
        const Frame& frame = stacks[at.stack][at.frame];
        if (!is_identifier(frame.function)) continue;
        const bool there = source.scope(frame.function, frame.line).has_value();
        if (!there && source.defines(frame.function)) return true;
        (there ? present : missing).emplace(frame.function, frame.line);
    }
    return missing.size() > present.size();
}

/// The first source that fits, with its path; null: none does.
std::pair<std::unique_ptr<const PythonSource>, std::string> fitting_source(const std::vector<SourceFile>& candidates,
                                                                           const std::vector<Stack>& stacks,
                                                                           const Positions& positions) {
    for (const SourceFile& candidate : candidates) {
        if (candidate.changed) continue;
        auto source = std::make_unique<const PythonSource>(candidate.text);
        if (source->sound() && !contradicts(*source, stacks, positions)) return {std::move(source), candidate.path};
    }
    return {};
}

}  // namespace

std::string_view called_name(const Frame& frame) {
    const std::string_view name = frame.native ? native_name(frame.function) : std::string_view(frame.function);
    const bool special = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
    // A module's own machinery: what it leads to is called by the module, whatever name the module has in the source.
    const bool module = is_one_of(name, "_wrapped_call_impl _call_impl _slow_forward");
    return is_identifier(name) && !special && !module ? name : std::string_view();
}

int call_line(const Stack& stack, std::size_t frame, const PythonSource& source) {
    const auto scope = source.scope(stack[frame].function, stack[frame].line);
    if (!scope) return 0;
    // A comprehension runs where it stands, and its frame begins on that line.
    if (frame > 0 && is_one_of(stack[frame - 1].function, "<listcomp> <setcomp> <dictcomp>") &&
        stack[frame - 1].file == stack[frame].file)
        return stack[frame - 1].line;
    for (std::size_t callee = frame; callee-- > 0;) {
        const std::string_view name = called_name(stack[callee]);
        if (name.empty()) return 0;
        const PythonSource::Found found = source.calls(*scope, name);
        // One of several lines made the call. What the callee calls in turn cannot tell which: it is the same for all of them.
        if (found.calls == PythonSource::Calls::kSeveralLines) return 0;
        if (found.calls == PythonSource::Calls::kOneLine) return found.line;
        // Called by another name, or not by name. Further inwards there are names that this function did not call, and a line
        // that happens to have one of them would be wrong. Only what hands a call on leads to the name that was meant.
        if (!hands_on(stack[callee])) return 0;
    }
    return 0;
}

CallLines find_call_lines(std::vector<Stack>& stacks, const FindSources& find, std::optional<std::int64_t> made) {
    CallLines lines;
    std::size_t opened = 0;
    for (const auto& [file, positions] : positions_by_file(stacks, lines)) {
        std::vector<SourceFile> candidates;
        if (find && opened++ < kMostFiles) candidates = find(file);
        for (SourceFile& candidate : candidates) candidate.changed |= made && candidate.written && *candidate.written > *made;
        const bool changed = std::ranges::any_of(candidates, &SourceFile::changed);
        const auto [source, path] = fitting_source(candidates, stacks, positions);
        if (source == nullptr && changed) lines.changed.push_back(file);
        std::vector<std::string*> named;
        for (const Position& at : positions) {
            Frame& frame = stacks[at.stack][at.frame];
            const int line = source != nullptr ? call_line(stacks[at.stack], at.frame, *source) : 0;
            if (line > 0) frame.line = line;
            if (!path.empty()) named.push_back(&frame.file);
            lines.found |= line > 0;
            // Lambdas and comprehensions begin where they are written, which is mostly the line of what they call.
            lines.kept |= line == 0 && (!frame.function.starts_with('<') || frame.function == "<module>");
        }
        for (std::string* name : named) *name = path;  // only now: frames are told apart by their file
    }
    return lines;
}

}  // namespace millrace::diagnose
