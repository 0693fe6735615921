#include "diagnose/reading/name_table.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

namespace millrace::diagnose {
namespace {

/// Bytes of the letter that begins `text`, 0 when it is none.
std::size_t letter_bytes(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return 1;
    const std::size_t count = first >= 0xc2 && first < 0xe0   ? 2
                              : first >= 0xe0 && first < 0xf0 ? 3
                              : first >= 0xf0 && first < 0xf5 ? 4
                                                              : 0;
    if (count == 0 || text.size() < count) return 0;
    for (std::size_t i = 1; i < count; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    // Forms that are longer than need be, surrogates, and what lies beyond the last letter.
    if (first == 0xe0 && byte(1) < 0xa0) return 0;
    if (first == 0xed && byte(1) >= 0xa0) return 0;
    if (first == 0xf0 && byte(1) < 0x90) return 0;
    if (first == 0xf4 && byte(1) >= 0x90) return 0;
    return count;
}

/// Letters that drive a terminal, or turn the direction of what follows so that it reads as something else.
bool is_control(std::string_view letter) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(letter[i]); };
    if (letter.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
    if (letter.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;  // U+0080 to U+009F
    if (letter.size() != 3 || byte(0) != 0xe2) return false;
    return (byte(1) == 0x80 && byte(2) >= 0xaa && byte(2) <= 0xae) ||  // U+202A to U+202E
           (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);    // U+2066 to U+2069
}

bool is_plain(std::string_view text) {
    return std::ranges::all_of(text, [](char letter) { return letter >= 0x20 && letter < 0x7f; });
}

constexpr std::size_t kNodeBytes = 96;  ///< what an entry takes besides its text

}  // namespace

std::string clean_text(std::string_view text, std::size_t cap) {
    if (text.size() <= cap && is_plain(text)) return std::string(text);
    std::string out;
    while (!text.empty()) {
        const std::size_t count = letter_bytes(text);
        const bool control = is_control(text.substr(0, count));
        const std::string_view letter = count == 0 ? std::string_view("\xef\xbf\xbd")
                                        : control  ? std::string_view(" ")
                                                   : text.substr(0, count);
        if (out.size() + letter.size() > cap) break;
        out += letter;
        text.remove_prefix(std::max<std::size_t>(count, 1));
    }
    return out;
}

std::string demangled(const std::string& name) {
    // Each reference may stand for all that was said before it, so a short name can be one of gigabytes.
    constexpr std::size_t kLongestName = 1024, kMostReferences = 40;
    std::size_t references = 0;
    for (std::size_t at = name.find('_'); at != std::string::npos; at = name.find('_', at + 1)) {
        std::size_t begin = at;
        while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
        const char letter = begin > 0 ? name[begin - 1] : ' ';
        references += letter >= 'A' && letter <= 'Z' ? 1 : 0;
    }
    if (!name.starts_with("_Z") || name.size() > kLongestName || references > kMostReferences) return name;
    int failed = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed),
                                                           &std::free);
    return text && failed == 0 ? std::string(text.get()) : name;
}

NameTable::NameTable(std::size_t cap) : cap_(cap) { add(""); }

std::uint32_t NameTable::add(std::string_view text) {
    const auto [entry, fresh] = numbers_.emplace(text, static_cast<std::uint32_t>(texts_.size()));
    if (fresh) {
        texts_.push_back(&entry->first);
        bytes_ += text.size() + kNodeBytes;
    }
    return entry->second;
}

std::uint32_t NameTable::number(std::string_view text) {
    const auto known = numbers_.find(text);
    if (known != numbers_.end()) return known->second;
    if (overflow_ == 0 && bytes_ + text.size() + kNodeBytes > cap_) overflow_ = add("(more)");
    if (overflow_ != 0) return overflow_;
    const std::string clean = clean_text(text);
    return add(clean);
}

std::vector<std::string> NameTable::release() {
    std::vector<std::string> texts;
    texts.reserve(texts_.size());
    for (const std::string* text : texts_) texts.push_back(*text);
    numbers_.clear();
    texts_.clear();
    bytes_ = 0;
    overflow_ = 0;
    add("");
    return texts;
}

}  // namespace millrace::diagnose
