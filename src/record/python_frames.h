#pragma once
// Stacks of Python code read from memory as it lies there, without the interpreter's help and without its lock. The probe reads
// its own process, where a thread's frames cannot change while it is inside a call; `record` samples other processes, where
// anything can have changed between two reads. So nothing that is read is trusted: every length, depth and list is bounded, and
// what makes no sense ends the walk. Needs headers alone; a Reader has `bool read(std::uint64_t address, void* to, std::size_t
// size)`.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "record/python_layout.h"

namespace millrace::record {

/// One frame as it can be compared: two frames that are equal are at the same place of the same code.
struct PythonFrame {
    std::uint64_t code = 0;         ///< address of the code object
    std::uint64_t instruction = 0;  ///< address, or number for 3.9 and 3.10
    bool operator==(const PythonFrame&) const = default;
};

/// What a frame is called. Texts are UTF-8, end in 0 and are cut where they do not fit.
struct PythonPlace {
    char file[512];
    char function[128];
    std::uint32_t line;  ///< 0: unknown
};

struct PythonThread {
    std::uint64_t state = 0;        ///< address of the thread state
    std::uint64_t interpreter = 0;  ///< address of its interpreter
    std::uint64_t pthread = 0;
    std::uint32_t number = 0;  ///< as gettid() has it; 0: unknown
};

template <class Reader>
std::uint64_t read_word(Reader& reader, std::uint64_t address) {
    std::uint64_t word = 0;
    return reader.read(address, &word, sizeof word) ? word : 0;
}

template <class T = std::uint64_t>
T value_at(const std::uint8_t* bytes, std::uint32_t offset) {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
}

inline bool is_object_address(std::uint64_t address) { return address >= 4096 && address % 8 == 0 && address >> 56 == 0; }

/// The frames of the thread at `state`, innermost first, at most `most`; returns how many. With `code_type`, the address of
/// PyCode_Type, frames whose code is no code object end the walk; 0: not checked.
template <class Reader>
std::uint32_t python_stack(Reader& reader, const PythonLayout& layout, std::uint64_t state, PythonFrame* frames,
                           std::uint32_t most, std::uint64_t code_type = 0) {
    constexpr std::uint32_t kMostSteps = 4096;
    std::uint64_t frame = read_word(reader, state + layout.thread_frame);
    if (frame != 0 && layout.frame_is_indirect) frame = read_word(reader, frame + layout.indirect_frame);
    std::uint32_t count = 0;
    for (std::uint32_t step = 0; step < kMostSteps && count < most && is_object_address(frame); ++step) {
        std::uint8_t bytes[256];
        if (!reader.read(frame, bytes, layout.frame_bytes)) break;
        frame = value_at(bytes, layout.frame_previous);
        if (layout.frame_owner != 0 && bytes[layout.frame_owner] >= 3) continue;
        PythonFrame one;
        one.code = value_at(bytes, layout.frame_code) & ~std::uint64_t{3};  // from 3.14 on the low bits are a mark
        one.instruction = value_at(bytes, layout.frame_instruction);
        if (layout.instruction_is_index) one.instruction &= 0xffffffff;
        if (!is_object_address(one.code)) break;
        if (code_type != 0 && read_word(reader, one.code + kObjectType) != code_type) break;
        frames[count++] = one;
    }
    return count;
}

/// Appends `point` as UTF-8 when it fits into `size` bytes with a 0 behind it.
inline bool put_character(char* to, std::size_t size, std::size_t& used, std::uint32_t point) {
    const std::size_t need = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    if (used + need + 1 > size) return false;
    if (need == 1) {
        to[used++] = static_cast<char>(point);
        return true;
    }
    const std::uint32_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (std::size_t part = need; part-- > 0;) {
        const std::uint32_t bits = part == 0 ? point | marks[need] : (point & 0x3f) | 0x80;
        to[used + part] = static_cast<char>(bits);
        point >>= 6;
    }
    used += need;
    return true;
}

/// The text object at `address` into `to`; false when it is none that can be read.
template <class Reader>
bool python_text(Reader& reader, const PythonLayout& layout, std::uint64_t address, char* to, std::size_t size) {
    to[0] = 0;
    std::uint8_t head[40];
    if (!is_object_address(address) || !reader.read(address, head, sizeof head)) return false;
    const auto state = value_at<std::uint32_t>(head, kTextState);
    const std::uint64_t length = value_at(head, kTextLength);
    const std::uint32_t width = state >> 2 & 7;
    const bool compact = (state >> 5 & 1) != 0, ascii = (state >> 6 & 1) != 0;
    if (!compact || (width != 1 && width != 2 && width != 4) || length > 1u << 20) return false;
    std::uint64_t from = address + (ascii ? layout.text_ascii : layout.text_compact);
    std::size_t used = 0;
    for (std::uint64_t left = length; left > 0;) {
        std::uint8_t piece[256];
        const std::uint64_t count = left < sizeof piece / width ? left : sizeof piece / width;
        if (!reader.read(from, piece, count * width)) return false;
        for (std::uint64_t i = 0; i < count; ++i) {
            std::uint32_t point = 0;
            std::memcpy(&point, piece + i * width, width);
            if (point == 0 || point > 0x10ffff || !put_character(to, size, used, point)) {
                to[used] = 0;
                return used > 0;
            }
        }
        from += count * width;
        left -= count;
    }
    to[used] = 0;
    return true;
}

/// File, function and line of a frame; false when the code object cannot be read as one.
template <class Reader>
bool python_place(Reader& reader, const PythonLayout& layout, const PythonFrame& frame, PythonPlace& place) {
    place.file[0] = place.function[0] = 0;
    place.line = 0;
    std::uint8_t code[512];
    if (!reader.read(frame.code, code, layout.code_bytes)) return false;
    if (!python_text(reader, layout, value_at(code, layout.code_file), place.file, sizeof place.file)) return false;
    if (!python_text(reader, layout, value_at(code, layout.code_name), place.function, sizeof place.function)) return false;
    const auto first_line = value_at<std::int32_t>(code, layout.code_first_line);
    std::int64_t offset;
    if (layout.instruction_is_index) {
        const auto index = static_cast<std::int32_t>(frame.instruction);
        offset = index < 0 ? 0 : std::int64_t{index} * layout.index_scale;
    } else {
        offset = static_cast<std::int64_t>(frame.instruction - (frame.code + layout.code_instructions));
        if (offset == -2) offset = 0;  // a frame that has not begun yet stands one unit before its first instruction
        if (offset < 0 || offset > 1 << 26) return true;
    }
    const std::uint64_t lines = value_at(code, layout.code_lines);
    if (!is_object_address(lines)) return true;
    const std::uint64_t size = read_word(reader, lines + kBytesLength);
    place.line = python_line(reader, layout.minor, lines + kBytesData, size, first_line, offset);
    return true;
}

/// 3.9 and 3.10 do not keep the kernel's number of a thread, but the C library does, at one place in all of its thread
/// descriptors: where the main thread's has `pid` and the others' have distinct small numbers.
template <class Reader>
void number_threads(Reader& reader, std::uint32_t pid, PythonThread* threads, std::uint32_t count) {
    constexpr std::uint32_t kDescriptorWords = 256;
    for (std::uint32_t at = 0; at < kDescriptorWords; ++at) {
        bool pid_seen = false, fits = true;
        for (std::uint32_t i = 0; i < count && fits; ++i) {
            std::uint32_t number = 0;
            fits = reader.read(threads[i].pthread + at * 4, &number, sizeof number) && number > 0 && number < 1u << 22;
            for (std::uint32_t j = 0; j < i && fits; ++j) fits = threads[j].number != number;
            threads[i].number = number;
            pid_seen = pid_seen || number == pid;
        }
        if (fits && pid_seen) return;
    }
    for (std::uint32_t i = 0; i < count; ++i) threads[i].number = 0;
}

/// All threads of all interpreters of the process `pid` whose `_PyRuntime` is at `runtime`, at most `most`; returns how many.
template <class Reader>
std::uint32_t python_threads(Reader& reader, const PythonLayout& layout, std::uint64_t runtime, std::uint32_t pid,
                             PythonThread* threads, std::uint32_t most) {
    constexpr std::uint32_t kMostInterpreters = 64;
    std::uint32_t count = 0, interpreters = 0;
    std::uint64_t interpreter = read_word(reader, runtime + layout.runtime_interpreters);
    for (; is_object_address(interpreter) && interpreters < kMostInterpreters; ++interpreters) {
        std::uint64_t state = read_word(reader, interpreter + layout.interpreter_threads);
        for (std::uint32_t steps = 0; is_object_address(state) && steps < most && count < most; ++steps) {
            if (read_word(reader, state + layout.thread_interpreter) != interpreter) break;
            PythonThread& thread = threads[count++];
            thread = {};
            thread.state = state;
            thread.interpreter = interpreter;
            thread.pthread = read_word(reader, state + layout.thread_pthread);
            if (layout.thread_number != 0)
                thread.number = static_cast<std::uint32_t>(read_word(reader, state + layout.thread_number));
            state = read_word(reader, state + layout.thread_next);
        }
        interpreter = read_word(reader, interpreter + layout.interpreter_next);
    }
    if (layout.thread_number == 0) number_threads(reader, pid, threads, count);
    return count;
}

/// Address of the int that is 1 while garbage is collected; 0 when it was not found. Before 3.13 it is found by the collector's
/// thresholds as they are by default (700, 10, 10), since its place differs between builds: a program that changed them has none.
template <class Reader>
std::uint64_t find_collecting(Reader& reader, const PythonLayout& layout, std::uint64_t interpreter) {
    if (layout.interpreter_collecting != 0) return interpreter + layout.interpreter_collecting;
    constexpr std::uint32_t kBytes = 2048, kThresholds = 40, kStride = 24, kCollecting = 200;
    std::uint8_t bytes[kBytes];
    if (!reader.read(interpreter, bytes, kBytes)) return 0;
    const auto number = [&](std::uint32_t at) { return value_at<std::int32_t>(bytes, at); };
    for (std::uint32_t at = 0; at + kCollecting + 4 <= kBytes; at += 8) {
        const std::uint32_t first = at + kThresholds;
        if (number(first) == 700 && number(first + kStride) == 10 && number(first + 2 * kStride) == 10)
            return interpreter + at + kCollecting;
    }
    return 0;
}

}  // namespace millrace::record
