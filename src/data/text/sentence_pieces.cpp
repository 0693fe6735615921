#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "data/text/tokenizer.h"

namespace millrace::data {
namespace {

constexpr std::string_view kPieceWhite = " \t\r\n";
constexpr std::size_t kMostSentences = 1000000;  // to train on; more say nothing new and take long

/// What SentencePiece answers, without the file and line of its own sources in front.
std::string reason(const sentencepiece::util::Status& status) {
    std::string text = status.error_message();
    if (const std::size_t end = text.rfind("] "); end != std::string::npos) text.erase(0, end + 2);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text.empty() ? status.ToString() : text;
}

class Texts final : public sentencepiece::SentenceIterator {
public:
    explicit Texts(const std::vector<std::string>& texts) : texts_(texts), count_(std::min(texts.size(), kMostSentences)) {}
    [[nodiscard]] bool done() const override { return at_ >= count_; }
    void Next() override { ++at_; }
    [[nodiscard]] const std::string& value() const override { return texts_[at_]; }
    [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

private:
    const std::vector<std::string>& texts_;
    std::size_t count_, at_ = 0;
};

/// Bytes of the longest stretch without white space.
std::size_t longest_word(std::string_view text) {
    std::size_t longest = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find_first_of(kPieceWhite, at), text.size());
        longest = std::max(longest, end - at);
        at = end + 1;
    }
    return longest;
}

struct PieceModel final : TokenModel {
    sentencepiece::SentencePieceProcessor processor;

    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<int> ids;
        const auto status = processor.Encode(text, &ids);
        MILLRACE_ASSERT(status.ok(), reason(status));
        return ids;
    }

    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
        std::string text;
        const auto status = processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
        MILLRACE_ASSERT(status.ok(), reason(status));
        return text;
    }
};

}  // namespace

bool Tokenizer::available() { return true; }

base::Result<Tokenizer> Tokenizer::train(const std::vector<std::string>& texts, std::int32_t vocabulary) {
    const auto says_nothing = [](const std::string& text) { return text.find_first_not_of(kPieceWhite) == std::string::npos; };
    if (std::all_of(texts.begin(), texts.end(), says_nothing))
        return base::Error{fmt::format("no tokens can be made of {} texts without a character", texts.size())};
    // Its trainer ends the process at a word of 2^16 characters, and one byte may become two of them.
    for (const std::string& text : texts)
        if (const std::size_t bytes = longest_word(text); bytes > Tokenizer::kLongestWord)
            return base::Error{
                fmt::format("a text has a word of {} bytes; at most {} would be right", bytes, Tokenizer::kLongestWord)};
    // One thread and merges by counts: nothing depends on the machine.
    const std::unordered_map<std::string, std::string> settings{
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(vocabulary)},
        {"hard_vocab_limit", "false"},
        {"character_coverage", "1.0"},
        {"max_sentence_length", std::to_string(Tokenizer::kLongestText)},
        {"num_threads", "1"},
        {"unk_id", std::to_string(Tokenizer::kUnknown)},
        {"eos_id", std::to_string(Tokenizer::kEnd)},
        {"bos_id", "-1"},
        {"pad_id", "-1"},
        {"minloglevel", "3"},
    };
    Texts iterator(texts);
    std::string bytes;
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &bytes);
    if (!status.ok())
        return base::Error{
            fmt::format("SentencePiece cannot make {} tokens of {} texts: {}", vocabulary, texts.size(), reason(status))};
    return load_pieces(std::move(bytes), "the tokenizer just trained");
}

base::Result<Tokenizer> Tokenizer::load_pieces(std::string bytes, const std::string& place) {
    auto model = std::make_unique<PieceModel>();
    sentencepiece::SentencePieceProcessor& processor = model->processor;
    if (const auto status = processor.LoadFromSerializedProto(bytes); !status.ok())
        return base::Error{fmt::format("is no SentencePiece model: {}", reason(status)), place};
    model->vocabulary = processor.GetPieceSize();
    model->unknown = Tokenizer::kUnknown;
    model->end = Tokenizer::kEnd;
    if (processor.unk_id() != model->unknown || processor.eos_id() != model->end || model->vocabulary <= model->end)
        return base::Error{
            fmt::format("is a SentencePiece model of other numbers: unknown is {} and the end {}; {} and {} are needed",
                        processor.unk_id(), processor.eos_id(), model->unknown, model->end),
            place};
    model->bytes = std::move(bytes);
    return Tokenizer(std::move(model));
}

}  // namespace millrace::data
