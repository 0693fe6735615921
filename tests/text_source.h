#pragma once
#include <algorithm>

#include "io/packing.h"

namespace millrace::test {

/// `text` in pieces of at most `piece` bytes; the text must outlive the source.
class TextSource : public io::ByteSource {
public:
    explicit TextSource(std::string_view text, std::size_t piece = std::size_t{1} << 20) : text_(text), piece_(piece) {}
    io::Result<std::size_t> read(std::span<char> into) override {
        const std::size_t count = std::min({into.size(), piece_, text_.size()});
        std::copy_n(text_.data(), count, into.data());
        text_.remove_prefix(count);
        return count;
    }

private:
    std::string_view text_;
    std::size_t piece_;
};

}  // namespace millrace::test
