#pragma once
// What stands in the frames of trace.bin, as writer and reader share it: fixed parts as structs, texts as length and bytes.

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "io/file.h"

namespace millrace::record {

constexpr std::size_t kTraceTextCap = std::size_t{64} << 10;  ///< of one text
constexpr std::size_t kTraceStackCap = 256;                   ///< frames of one stack

struct RecordsHead {
    std::uint32_t pid = 0;
    std::uint16_t incarnation = 0, lane = 0;
};
struct SampleRow {
    std::uint64_t time = 0;
    std::uint32_t pid = 0, thread = 0, stack = 0, wait = 0;
    std::uint32_t state = 0, reserved = 0;
};
static_assert(sizeof(SampleRow) == 32);
struct BlockRow {
    std::uint64_t begin = 0, end = 0;
    double steps = 0;
    std::uint32_t pid = 0;
    std::uint16_t calls_per_step = 0;
    std::uint8_t call = 0, reserved = 0;
};
static_assert(sizeof(BlockRow) == 32);
struct ProcessHead {
    std::uint64_t appeared = 0, ended = 0;
    std::uint32_t pid = 0, parent = 0, main_thread = 0, has_gpu = 0;
};
static_assert(sizeof(ProcessHead) == 32);
struct ClockRow {
    std::uint64_t monotonic = 0;
    double wall = 0;
};

/// Builds the content of a frame.
class ContentWriter {
public:
    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void put(std::string_view text) {
        text = text.substr(0, kTraceTextCap);
        put(static_cast<std::uint32_t>(text.size()));
        bytes_.append(text);
    }
    [[nodiscard]] std::string& bytes() { return bytes_; }

private:
    std::string bytes_;
};

/// Takes it apart; absent as soon as something does not fit, and then for good.
class ContentReader {
public:
    explicit ContentReader(io::Bytes bytes) : bytes_(bytes) {}
    template <class T>
    std::optional<T> get() {
        static_assert(std::is_trivially_copyable_v<T>);
        if (bytes_.size() < sizeof(T)) return fail<T>();
        T value{};
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_ = bytes_.subspan(sizeof value);
        return value;
    }
    std::optional<std::string> get_text() {
        const auto size = get<std::uint32_t>();
        if (!size || *size > kTraceTextCap || *size > bytes_.size()) return fail<std::string>();
        std::string text(reinterpret_cast<const char*>(bytes_.data()), *size);
        bytes_ = bytes_.subspan(*size);
        return text;
    }
    [[nodiscard]] io::Bytes rest() const { return bytes_; }

private:
    template <class T>
    std::optional<T> fail() {
        bytes_ = {};
        return std::nullopt;
    }
    io::Bytes bytes_;
};

}  // namespace millrace::record
