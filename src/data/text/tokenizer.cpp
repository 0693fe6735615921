#include "data/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "io/safetensors.h"

namespace millrace::data {
namespace {

constexpr std::string_view kWordsMark = "millrace-words 1 ";
constexpr std::int32_t kUnknownWord = 1;  // the only special one that encode() gives
constexpr std::int32_t kEndWord = 3;
constexpr std::array<std::string_view, kSpecialWords> kSpecial{"<pad>", "<unk>", "<bos>", "<eos>"};

bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Calls body(word) for each word in lower case; the view lasts until the next.
template <class Body>
void for_each_word(std::string_view text, Body&& body) {
    std::string word;
    for (std::size_t at = 0; at < text.size();) {
        while (at < text.size() && is_white(text[at])) ++at;
        word.clear();
        for (; at < text.size() && !is_white(text[at]); ++at)
            word += text[at] >= 'A' && text[at] <= 'Z' ? static_cast<char>(text[at] - 'A' + 'a') : text[at];
        if (!word.empty()) body(std::string_view(word));
    }
}

struct HashText {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using ByWord = std::unordered_map<std::string, Value, HashText, std::equal_to<>>;

struct WordModel final : TokenModel {
    std::vector<std::string_view> words;  ///< by number; views of the keys of `numbers`, which stay where they are
    ByWord<std::int32_t> numbers;         ///< without the special ones: a text that has them means something unknown

    WordModel() : words(kSpecial.begin(), kSpecial.end()) { unknown = kUnknownWord, end = kEndWord; }

    /// False when it is there already, or cannot be a word.
    bool add(std::string_view word) {
        if (word.empty() || std::ranges::any_of(word, is_white) || std::ranges::find(kSpecial, word) != kSpecial.end())
            return false;
        const auto [at, added] = numbers.emplace(word, static_cast<std::int32_t>(words.size()));
        if (added) words.emplace_back(at->first);
        return added;
    }

    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<std::int32_t> ids;
        for_each_word(text, [&](std::string_view word) {
            const auto at = numbers.find(word);
            ids.push_back(at == numbers.end() ? unknown : at->second);
        });
        return ids;
    }

    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
        std::string text;
        for (const std::int32_t id : ids) {
            if (static_cast<std::size_t>(id) >= words.size()) continue;
            if (!text.empty()) text += ' ';
            text += words[static_cast<std::size_t>(id)];
        }
        return text;
    }
};

}  // namespace

base::Result<Tokenizer> Tokenizer::count_words(std::string_view text, std::int32_t vocabulary) {
    if (vocabulary <= kSpecialWords || vocabulary > kMostWords)
        return base::Error{fmt::format("a vocabulary of {} words; {} ({} have a meaning of their own) to {} would be right",
                                       vocabulary, kSpecialWords + 1, kSpecialWords, kMostWords)};
    ByWord<std::uint64_t> counts;
    std::vector<decltype(counts)::const_pointer> order;  // of first appearance
    for_each_word(text, [&](std::string_view word) {
        auto at = counts.find(word);
        if (at == counts.end()) {
            at = counts.emplace(word, 0).first;
            order.push_back(&*at);
        }
        ++at->second;
    });
    std::ranges::stable_sort(order, std::greater{}, [](const auto* entry) { return entry->second; });
    auto model = std::make_unique<WordModel>();
    model->vocabulary = vocabulary;
    model->bytes = fmt::format("{}{}\n", kWordsMark, vocabulary);
    for (const auto* entry : order) {
        if (model->words.size() == static_cast<std::size_t>(vocabulary)) break;
        if (model->add(entry->first)) model->bytes += entry->first + "\n";
    }
    if (order.empty()) return base::Error{"holds no word"};
    return Tokenizer(std::move(model));
}

base::Result<Tokenizer> Tokenizer::load_words(std::string bytes, const std::string& place) {
    std::string_view rest = std::string_view(bytes).substr(std::min(bytes.size(), kWordsMark.size()));
    auto model = std::make_unique<WordModel>();
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), model->vocabulary);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (!bytes.starts_with(kWordsMark) || failure != std::errc{} || model->vocabulary <= kSpecialWords ||
        model->vocabulary > kMostWords || !rest.starts_with('\n') || !bytes.ends_with('\n'))
        return base::Error{fmt::format("is no list of words that begins with \"{}10000\" and a new line", kWordsMark), place};
    for (rest.remove_prefix(1); !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find('\n'));
        if (!model->add(word))
            return base::Error{fmt::format("word {} is empty, special or there twice", model->words.size()), place};
        if (model->words.size() > static_cast<std::size_t>(model->vocabulary))
            return base::Error{fmt::format("has more words than its vocabulary of {}", model->vocabulary), place};
        rest.remove_prefix(word.size() + 1);
    }
    model->bytes = std::move(bytes);
    return Tokenizer(std::move(model));
}

base::Result<Tokenizer> Tokenizer::load(std::string bytes, const std::string& place) {
    return bytes.starts_with(kWordsMark) ? load_words(std::move(bytes), place) : load_pieces(std::move(bytes), place);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
    std::vector<std::int32_t> known;
    for (const std::int32_t id : ids) {
        if (id == end()) break;
        if (id >= 0 && id < vocabulary()) known.push_back(id);
    }
    return model_->decode(known);
}

base::Result<std::shared_ptr<const Tokenizer>> stored_tokenizer(const io::SafetensorsFile& file, const std::string& name) {
    const io::TensorView* bytes = file.find(name);
    if (bytes == nullptr) return std::shared_ptr<const Tokenizer>();
    if (bytes->type != io::ElementType::kU8) return base::Error{fmt::format("tensor {} is no list of bytes", name), file.place()};
    MILLRACE_LET(model, file.read(*bytes));
    MILLRACE_LET(tokenizer, Tokenizer::load(std::string(reinterpret_cast<const char*>(model.data()), model.size()),
                                            fmt::format("{}: {}", file.place().string(), name)));
    return std::make_shared<const Tokenizer>(std::move(tokenizer));
}

}  // namespace millrace::data
