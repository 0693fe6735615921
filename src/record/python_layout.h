#pragma once
// Where the CPython interpreter keeps what a stack walk needs, by version. 3.9 to 3.12 have tables (64-bit release builds); from
// 3.13 on the interpreter publishes a list of offsets at the start of `_PyRuntime`, whose own order changes by minor version.
// Builds without the global lock and versions not listed are refused rather than guessed.
//
// And how its code objects tell the line of an instruction. Three formats: pairs of deltas (3.9), pairs with a mark for "no line"
// (3.10), entries of variable length (from 3.11 on).

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace millrace::record {

/// Offsets in bytes from the start of each structure.
struct PythonLayout {
    std::uint32_t minor = 0;  ///< of 3.minor; 0: no layout

    std::uint32_t runtime_interpreters = 0;  ///< pointer to the first interpreter
    std::uint32_t interpreter_next = 0, interpreter_threads = 0;
    std::uint32_t interpreter_collecting = 0;  ///< int: garbage is being collected; 0: look for it (find_collecting)

    std::uint32_t thread_next = 0, thread_interpreter = 0, thread_pthread = 0;
    std::uint32_t thread_number = 0;  ///< what gettid() says in that thread; 0: not kept (3.9, 3.10)
    std::uint32_t thread_frame = 0;   ///< the innermost frame, or what points to it
    bool frame_is_indirect = false;   ///< thread_frame points to a structure that has the frame at `indirect_frame`
    std::uint32_t indirect_frame = 0;

    std::uint32_t frame_code = 0, frame_previous = 0, frame_instruction = 0;
    bool instruction_is_index = false;  ///< an int instead of an address; counted in `index_scale` bytes
    std::uint32_t index_scale = 1;
    std::uint32_t frame_owner = 0;  ///< a byte: 3 and above are no frames of Python code; 0: not kept
    std::uint32_t frame_bytes = 0;  ///< how much of a frame has to be read

    std::uint32_t code_file = 0, code_name = 0, code_first_line = 0, code_lines = 0;
    std::uint32_t code_instructions = 0;  ///< first instruction; 0: elsewhere
    std::uint32_t code_text = 0;          ///< pointer to the text with the instructions; 0: they follow the object
    std::uint32_t code_bytes = 0;         ///< how much of a code object has to be read

    std::uint32_t text_ascii = 0, text_compact = 0;  ///< where the characters begin: of ASCII texts, of others
};

constexpr std::uint32_t kTextLength = 16, kTextState = 32, kBytesLength = 16, kBytesData = 32, kObjectType = 8,
                        kVariableSize = 16;

/// The layout of 3.9 to 3.12 by `version` as PY_VERSION_HEX has it (0x030b07f0: 3.11.7); minor 0 for others.
inline PythonLayout python_table(std::uint32_t version) {
    PythonLayout it;
    if (version >> 24 != 3) return it;
    const std::uint32_t minor = version >> 16 & 0xff;
    if (minor < 9 || minor > 12) return it;
    it.minor = minor;
    it.thread_next = 8;
    it.thread_interpreter = 16;
    it.text_ascii = minor < 12 ? 48 : 40;
    it.text_compact = minor < 12 ? 72 : 56;
    if (minor <= 10) {
        it.runtime_interpreters = 32;
        it.interpreter_threads = 8;
        it.thread_frame = 24;
        it.thread_pthread = 176;
        it.frame_previous = 24;
        it.frame_code = 32;
        it.frame_instruction = minor == 9 ? 104 : 96;
        it.instruction_is_index = true;
        it.index_scale = minor == 9 ? 1 : 2;
        it.frame_bytes = 112;
        it.code_file = 104;
        it.code_name = 112;
        it.code_first_line = 40;
        it.code_text = 48;
        it.code_lines = 120;
        it.code_bytes = 128;
        return it;
    }
    it.runtime_interpreters = 40;
    it.interpreter_threads = minor == 11 ? 16 : 72;
    it.thread_frame = 56;
    it.frame_is_indirect = true;
    it.indirect_frame = minor == 11 ? 8 : 0;
    it.thread_pthread = minor == 11 ? 152 : 136;
    it.thread_number = it.thread_pthread + 8;
    it.frame_code = minor == 11 ? 32 : 0;
    it.frame_previous = minor == 11 ? 48 : 8;
    it.frame_instruction = 56;
    it.frame_owner = minor == 11 ? 69 : 70;
    it.frame_bytes = 72;
    it.code_file = 112;
    it.code_name = 120;
    it.code_first_line = minor == 11 ? 72 : 68;
    it.code_lines = 136;
    it.code_instructions = minor == 11 ? 184 : 192;
    it.code_bytes = 144;
    return it;
}

/// Places of the offsets within the list that 3.13 and later publish, counted in words of eight bytes.
struct PublishedPlaces {
    std::uint32_t gc, thread_next, thread_pthread, frame_previous, code_file, collecting;
};

/// Reads the list of 3.13 to 3.15 at `runtime`, the address of `_PyRuntime`. A Reader has `bool read(address, void*, size)`.
template <class Reader>
PythonLayout published_layout(Reader& reader, std::uint64_t runtime) {
    constexpr std::uint32_t kWords = 96;
    constexpr PublishedPlaces kPlaces[] = {
        {10, 21, 24, 29, 35, 72},  // 3.13
        {11, 24, 27, 32, 40, 82},  // 3.14
        {11, 24, 30, 40, 48, 95},  // 3.15
    };
    PythonLayout it;
    std::uint64_t words[kWords];
    if (!reader.read(runtime, words, sizeof words)) return it;
    if (std::memcmp(words, "xdebugpy", 8) != 0) return it;
    const auto version = static_cast<std::uint32_t>(words[1]);
    const std::uint32_t minor = version >> 16 & 0xff;
    if (version >> 24 != 3 || minor < 13 || minor > 15 || words[2] != 0) return it;
    const PublishedPlaces& at = kPlaces[minor - 13];
    bool sane = true;
    const auto word = [&](std::uint32_t index) {
        sane = sane && words[index] < 1u << 20;
        return static_cast<std::uint32_t>(words[index] & 0xfffff);
    };
    it.runtime_interpreters = word(5);
    it.interpreter_next = word(8);
    it.interpreter_threads = word(9);
    it.interpreter_collecting = word(at.gc) + word(at.collecting);
    it.thread_next = word(at.thread_next);
    it.thread_interpreter = word(at.thread_next + 1);
    it.thread_frame = word(at.thread_next + 2);
    it.thread_pthread = word(at.thread_pthread);
    it.thread_number = word(at.thread_pthread + 1);
    it.frame_previous = word(at.frame_previous);
    it.frame_code = word(at.frame_previous + 1);
    it.frame_instruction = word(at.frame_previous + 2);
    it.frame_owner = word(at.frame_previous + 4);
    it.code_file = word(at.code_file);
    it.code_name = word(at.code_file + 1);
    it.code_lines = word(at.code_file + 3);
    it.code_first_line = word(at.code_file + 4);
    it.code_instructions = word(at.code_file + 8);
    it.text_ascii = 40;
    it.text_compact = 56;
    const auto further = [](std::uint32_t so_far, std::uint32_t offset) { return offset + 8 > so_far ? offset + 8 : so_far; };
    for (const std::uint32_t offset : {it.frame_previous, it.frame_code, it.frame_instruction, it.frame_owner})
        it.frame_bytes = further(it.frame_bytes, offset);
    for (const std::uint32_t offset : {it.code_file, it.code_name, it.code_lines, it.code_first_line})
        it.code_bytes = further(it.code_bytes, offset);
    if (sane && it.frame_bytes <= 256 && it.code_bytes <= 512 && it.frame_owner != 0) it.minor = minor;
    return it;
}

/// The layout of the interpreter whose `_PyRuntime` is at `runtime`. `version` as PY_VERSION_HEX (the variable `Py_Version`, from
/// 3.11 on; before, the name of the library tells); 0 will do from 3.13 on. `minor` is 0 when the interpreter is not understood.
template <class Reader>
PythonLayout python_layout(Reader& reader, std::uint64_t runtime, std::uint32_t version) {
    const PythonLayout table = python_table(version);
    return table.minor != 0 ? table : published_layout(reader, runtime);
}

/// Reads a table in pieces, so that its size does not matter; past the end, or when memory cannot be read, it gives -1.
template <class Reader>
class TableBytes {
public:
    TableBytes(Reader& reader, std::uint64_t address, std::uint64_t size)
        : reader_(reader), address_(address), left_(size < kMostBytes ? size : kMostBytes) {}

    int next() {
        const int byte = peek();
        if (byte >= 0) ++at_;
        return byte;
    }
    int peek() { return at_ == filled_ && !fill() ? -1 : piece_[at_]; }

private:
    static constexpr std::uint64_t kMostBytes = 1u << 20;

    bool fill() {
        const std::uint64_t size = left_ < sizeof piece_ ? left_ : sizeof piece_;
        if (size == 0 || !reader_.read(address_, piece_, size)) return false;
        address_ += size;
        left_ -= size;
        filled_ = static_cast<std::uint32_t>(size);
        at_ = 0;
        return true;
    }

    Reader& reader_;
    std::uint64_t address_, left_;
    std::uint32_t at_ = 0, filled_ = 0;
    std::uint8_t piece_[256];
};

/// The signed number at the start of an entry's rest: six bits a byte, the lowest first; bit 0 of the whole is the sign.
template <class Reader>
std::int64_t signed_number(TableBytes<Reader>& table) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 36; shift += 6) {
        const int byte = table.next();
        if (byte < 0) break;
        value |= std::uint64_t(byte & 63) << shift;
        if ((byte & 64) == 0) break;
    }
    const auto half = static_cast<std::int64_t>(value >> 1);
    return (value & 1) != 0 ? -half : half;
}

/// Goes through a table: calls `use(end, line)` with each stretch of bytes up to `end` and its line, 0 where it has none, until
/// that answers false. 3.9: the line holds from the address on at which it was reached. 3.10: lines of -128 belong to no line.
/// From 3.11 on entries begin with a byte above 127 (kind in bits 3 to 6, code units less one in bits 0 to 2).
template <class Reader, class Use>
void each_line(Reader& reader, std::uint32_t minor, std::uint64_t address, std::uint64_t size, std::int64_t first_line,
               const Use& use) {
    constexpr int kLinesAhead0 = 10, kLinesAhead2 = 12, kNoColumns = 13, kLong = 14, kNoLine = 15;
    TableBytes<Reader> table(reader, address, size);
    std::int64_t line = first_line, end = 0;
    for (int head = table.next(); head >= 0; head = table.next()) {
        if (minor <= 10) {
            const int lines = table.next();
            if (lines < 0) break;
            const bool has_line = minor == 9 || static_cast<std::int8_t>(lines) != -128;
            if (minor == 10 && has_line) line += static_cast<std::int8_t>(lines);
            if (!use(end += head, has_line ? line : 0)) return;
            if (minor == 9) line += static_cast<std::int8_t>(lines);
            continue;
        }
        const int kind = head >> 3 & 15;
        if (head < 128) return;
        if (kind == kNoColumns || kind == kLong)
            line += signed_number(table);
        else if (kind >= kLinesAhead0 && kind <= kLinesAhead2)
            line += kind - kLinesAhead0;
        if (!use(end += ((head & 7) + 1) * 2, kind == kNoLine ? 0 : line)) return;
        for (int byte = table.peek(); byte >= 0 && byte < 128; byte = table.peek()) table.next();
    }
    if (minor == 9) use(INT64_MAX, line);
}

/// Line of the instruction at `offset` bytes into the code; 0 when the table does not say.
template <class Reader>
std::uint32_t python_line(Reader& reader, std::uint32_t minor, std::uint64_t table, std::uint64_t size, std::int64_t first_line,
                          std::int64_t offset) {
    std::int64_t found = 0;
    each_line(reader, minor, table, size, first_line, [&](std::int64_t end, std::int64_t line) {
        if (offset >= end) return true;
        found = line;
        return false;
    });
    return found > 0 && found < INT32_MAX ? static_cast<std::uint32_t>(found) : 0;
}

}  // namespace millrace::record
