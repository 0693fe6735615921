#pragma once
// The loops of a Python function, by lines, read from its bytecode: a backward jump and what it encloses. A `for` reaches from
// its FOR_ITER to where that leaves; any other loop to its last jump back, without handlers that lie behind the function
// (from 3.12 on). Code that a tracer has changed, and versions whose instructions are not listed, have none that are known.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "record/python_frames.h"
#include "record/trace_file.h"

namespace millrace::record {

/// What a loop is told by, by minor version: lists of numbers of instructions.
struct PythonInstructions {
    std::string_view iterates, jumps, extends, handles;
    std::string_view caches;  ///< units behind an instruction as characters from '0' on, by its number; none for those beyond
    std::uint8_t executor = 0, traced = 255;  ///< code with the one, or any from the other on, is not as the compiler made it
};

inline PythonInstructions python_instructions(std::uint32_t minor) {
    switch (minor) {
        case 9:
        case 10: return {"\x5d", "\x71\x72\x73", "\x90", "", ""};
        case 11:
            return {"\x5d", "\x8c\x26\xad\xae\xaf\xb0", "\x90\x22", "",
                    "00011111100001101444444444222200000000044444000550000005::::10::1111000011001111110000000000100400000000"
                    "00420000010050000110000100000000000001010000000004400044:00000101114000001111"};
        case 12:
            return {"\x5d\x3e\x3f\x40\x41",
                    "\x8c",
                    "\x90",
                    "\x23",
                    "00000011101001101011111331003300003000333333333330000000311110111111009099009999999000000000110400000000"
                    "00910004440040000011000000000000000001000000400004000001110000111003",
                    0,
                    237};
        case 13:
            return {"\x48\xbb\xbc\xbd\xbe",
                    "\x4d",
                    "\x47",
                    "\x21",
                    "00010100000000000000000000000000000000013000010000000300001100000000000010000100009000000004010001111000"
                    "10004000000001000000000000000000000000000000001111111111113333333333333333333311111111199999999999944110"
                    "144411333333111",
                    70,
                    236};
        default: return {};
    }
}

inline bool knows_loops(std::uint32_t minor) { return !python_instructions(minor).jumps.empty(); }

/// Loops by their first units and those behind them. Empty where a unit is not understood.
inline std::map<std::uint64_t, std::uint64_t> loops_in(const std::vector<std::uint8_t>& bytes, std::uint32_t minor) {
    const PythonInstructions known = python_instructions(minor);
    const auto is = [](std::string_view list, std::uint8_t number) { return list.find(static_cast<char>(number)) != list.npos; };
    const std::uint64_t scale = minor == 9 ? 2 : 1;       // jumps count in bytes there
    std::map<std::uint64_t, std::uint64_t> loops, exits;  // exits: where iterations leave
    bool handled = false;
    for (std::uint64_t at = 0, word = 0; at < bytes.size() / 2;) {
        const std::uint8_t number = bytes[2 * at];
        if (number >= known.traced || (known.executor != 0 && number == known.executor)) return {};
        const auto behind = number < known.caches.size() ? static_cast<std::uint64_t>(known.caches[number] - '0') : 0;
        const std::uint64_t next = at + 1 + behind;
        word = word << 8 | bytes[2 * at + 1];
        handled = handled || is(known.handles, number);
        if (is(known.iterates, number)) exits[at] = next + word / scale;
        if (is(known.jumps, number)) {
            const std::uint64_t to = minor <= 10 ? word / scale : next - std::min(word, next);
            std::uint64_t head = to;  // an iteration may begin with extensions of its number
            while (head < at && is(known.extends, bytes[2 * head])) ++head;
            if (const auto exit = exits.find(head); to <= at && exit != exits.end())
                loops[to] = exit->second;
            else if (to <= at && !handled)
                loops[to] = std::max(loops[to], next);
        }
        if (!is(known.extends, number)) word = 0;
        at = next;
    }
    return loops;
}

/// Ascending, outer ones before those in them. Code that cannot be read has none.
template <class Reader>
std::vector<LineRange> python_loops(Reader& reader, const PythonLayout& layout, std::uint64_t code_object) {
    constexpr std::uint64_t kMostUnits = 1u << 16;
    std::uint8_t code[512];
    if (!knows_loops(layout.minor) || !reader.read(code_object, code, layout.code_bytes)) return {};
    const std::uint64_t text = layout.code_text != 0 ? value_at(code, layout.code_text) : 0;
    if (layout.code_text != 0 && !is_object_address(text)) return {};
    const std::uint64_t units = text != 0 ? read_word(reader, text + kBytesLength) / 2 : value_at(code, kVariableSize);
    if (units > kMostUnits) return {};
    std::vector<std::uint8_t> bytes(2 * units);
    if (!reader.read(text != 0 ? text + kBytesData : code_object + layout.code_instructions, bytes.data(), bytes.size()))
        return {};
    const std::map<std::uint64_t, std::uint64_t> units_of = loops_in(bytes, layout.minor);
    std::vector<LineRange> loops(units_of.size(), {UINT32_MAX, 0});
    const auto first_line = value_at<std::int32_t>(code, layout.code_first_line);
    const std::uint64_t lines = value_at(code, layout.code_lines);
    std::int64_t from = 0;
    const auto add = [&](std::int64_t end, std::int64_t line) {
        auto loop = loops.begin();
        for (const auto& [first, behind] : units_of) {
            const bool inside = end > static_cast<std::int64_t>(2 * first) && from < static_cast<std::int64_t>(2 * behind);
            if (inside && line > 0 && line < INT32_MAX) {
                loop->first = std::min(loop->first, static_cast<std::uint32_t>(line));
                loop->last = std::max(loop->last, static_cast<std::uint32_t>(line));
            }
            ++loop;
        }
        from = end;
        return end < static_cast<std::int64_t>(2 * kMostUnits);
    };
    if (!loops.empty() && is_object_address(lines))
        each_line(reader, layout.minor, lines + kBytesData, read_word(reader, lines + kBytesLength), first_line, add);
    std::erase_if(loops, [](LineRange range) { return range.last == 0; });
    std::ranges::sort(loops, [](LineRange a, LineRange b) { return a.first != b.first ? a.first < b.first : a.last > b.last; });
    // A loop may have two heads, the test and what follows it: they share the first line, or cross as no two loops do.
    std::vector<LineRange> whole;
    for (const LineRange range : loops) {
        const bool more = !whole.empty() && range.first <= whole.back().last && range.last > whole.back().last;
        if (more) whole.back().last = range.last;
        if (!more && (whole.empty() || range.first != whole.back().first)) whole.push_back(range);
    }
    return whole;
}

}  // namespace millrace::record
