#pragma once
// The line of an instruction, from the table that a code object carries. Three formats: pairs of deltas (3.9), pairs with a mark
// for "no line" (3.10), entries of variable length (from 3.11 on).

#include <cstdint>

namespace millrace::record {

/// Reads a table in pieces, so that its size does not matter; past the end, or when memory cannot be read, it gives -1.
template <class Reader>
class TableBytes {
public:
    TableBytes(Reader& reader, std::uint64_t address, std::uint64_t size)
        : reader_(reader), address_(address), left_(size < kMostBytes ? size : kMostBytes) {}

    int next() {
        if (at_ == filled_ && !fill()) return -1;
        return piece_[at_++];
    }
    int peek() {
        if (at_ == filled_ && !fill()) return -1;
        return piece_[at_];
    }

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

/// 3.9: pairs (bytes forward, lines forward as int8); the line holds from the address on at which it was reached.
template <class Reader>
std::int64_t line_by_deltas(TableBytes<Reader>& table, std::int64_t first_line, std::int64_t offset) {
    std::int64_t line = first_line, address = 0;
    for (;;) {
        const int forward = table.next(), lines = table.next();
        if (forward < 0 || lines < 0) return line;
        address += forward;
        if (address > offset) return line;
        line += static_cast<std::int8_t>(lines);
    }
}

/// 3.10: pairs (bytes covered, lines forward as int8); -128 covers bytes that belong to no line.
template <class Reader>
std::int64_t line_by_ranges(TableBytes<Reader>& table, std::int64_t first_line, std::int64_t offset) {
    std::int64_t line = first_line, end = 0;
    for (;;) {
        const int covered = table.next(), lines = table.next();
        if (covered < 0 || lines < 0) return 0;
        const bool has_line = static_cast<std::int8_t>(lines) != -128;
        if (has_line) line += static_cast<std::int8_t>(lines);
        end += covered;
        if (offset < end) return has_line ? line : 0;
    }
}

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

/// From 3.11 on: entries that begin with a byte above 127 (kind in bits 3 to 6, code units less one in bits 0 to 2).
template <class Reader>
std::int64_t line_by_entries(TableBytes<Reader>& table, std::int64_t first_line, std::int64_t offset) {
    constexpr int kLinesAhead0 = 10, kLinesAhead2 = 12, kNoColumns = 13, kLong = 14, kNoLine = 15;
    std::int64_t line = first_line, end = 0;
    for (;;) {
        const int head = table.next();
        if (head < 128) return 0;
        const int kind = head >> 3 & 15;
        if (kind == kNoColumns || kind == kLong)
            line += signed_number(table);
        else if (kind >= kLinesAhead0 && kind <= kLinesAhead2)
            line += kind - kLinesAhead0;
        end += ((head & 7) + 1) * 2;
        if (offset < end) return kind == kNoLine ? 0 : line;
        for (int byte = table.peek(); byte >= 0 && byte < 128; byte = table.peek()) table.next();
    }
}

/// Line of the instruction at `offset` bytes into the code; 0 when the table does not say.
template <class Reader>
std::uint32_t python_line(Reader& reader, std::uint32_t minor, std::uint64_t table, std::uint64_t size, std::int64_t first_line,
                          std::int64_t offset) {
    TableBytes<Reader> bytes(reader, table, size);
    const std::int64_t line = minor <= 9    ? line_by_deltas(bytes, first_line, offset)
                              : minor == 10 ? line_by_ranges(bytes, first_line, offset)
                                            : line_by_entries(bytes, first_line, offset);
    return line > 0 && line < INT32_MAX ? static_cast<std::uint32_t>(line) : 0;
}

}  // namespace millrace::record
