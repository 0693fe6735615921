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
