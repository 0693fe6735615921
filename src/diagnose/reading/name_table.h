#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace millrace::diagnose {

/// `text` as every output can show it: bytes that are no UTF-8 become U+FFFD, control characters become spaces, and what is
/// longer than `cap` bytes is cut between two letters.
std::string clean_text(std::string_view text, std::size_t cap = 4096);

/// The name that a C++ compiler made of it, as PyTorch's profiler shows it: names of more than 1,024 bytes stay as they are, and
/// those that are no such names.
std::string demangled(const std::string& name);

/// Gives each text one number; number 0 is the empty text. Memory is bounded: beyond `cap` bytes every new text is one, "(more)".
class NameTable {
public:
    explicit NameTable(std::size_t cap = std::size_t{64} << 20);

    std::uint32_t number(std::string_view text);
    [[nodiscard]] const std::string& text(std::uint32_t number) const { return *texts_[number]; }
    [[nodiscard]] std::size_t size() const { return texts_.size(); }
    [[nodiscard]] bool full() const { return overflow_ != 0; }
    /// All texts in the order of their numbers; the table is empty afterwards.
    std::vector<std::string> release();

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    std::uint32_t add(std::string_view text);

    std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> numbers_;
    std::vector<const std::string*> texts_;  ///< nodes of a map stay where they are
    std::size_t cap_, bytes_ = 0;
    std::uint32_t overflow_ = 0;
};

}  // namespace millrace::diagnose
