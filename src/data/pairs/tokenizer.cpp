#include "data/pairs/tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "data/pairs/pairs.h"

namespace millrace::data {
namespace {

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

}  // namespace

struct Tokenizer::Model {
    sentencepiece::SentencePieceProcessor processor;
};

Tokenizer::Tokenizer(std::unique_ptr<Model> model, std::string bytes, std::int32_t vocabulary)
    : model_(std::move(model)), bytes_(std::move(bytes)), vocabulary_(vocabulary) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

bool Tokenizer::available() { return true; }

base::Result<Tokenizer> Tokenizer::train(const std::vector<std::string>& texts, std::int32_t vocabulary) {
    const auto says_nothing = [](const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; };
    if (std::all_of(texts.begin(), texts.end(), says_nothing))
        return base::Error{fmt::format("no tokens can be made of {} texts without a character", texts.size())};
    // One thread and merges by counts: nothing depends on the machine.
    const std::unordered_map<std::string, std::string> settings{
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(vocabulary)},
        {"hard_vocab_limit", "false"},
        {"character_coverage", "1.0"},
        {"max_sentence_length", std::to_string(kPairLineCap)},
        {"num_threads", "1"},
        {"unk_id", std::to_string(kUnknown)},
        {"eos_id", std::to_string(kEnd)},
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
    return load(std::move(bytes), "the tokenizer just trained");
}

base::Result<Tokenizer> Tokenizer::load(std::string bytes, const std::string& place) {
    auto model = std::make_unique<Model>();
    if (const auto status = model->processor.LoadFromSerializedProto(bytes); !status.ok())
        return base::Error{fmt::format("is no SentencePiece model: {}", reason(status)), place};
    const int vocabulary = model->processor.GetPieceSize();
    if (model->processor.unk_id() != kUnknown || model->processor.eos_id() != kEnd || vocabulary <= kEnd)
        return base::Error{
            fmt::format("is a SentencePiece model of other numbers: unknown is {} and the end {}; {} and {} are needed",
                        model->processor.unk_id(), model->processor.eos_id(), kUnknown, kEnd),
            place};
    return Tokenizer(std::move(model), std::move(bytes), vocabulary);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
    std::vector<int> ids;
    const auto status = model_->processor.Encode(text, &ids);
    MILLRACE_ASSERT(status.ok(), reason(status));
    return {ids.begin(), ids.end()};
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
    std::vector<int> known;
    for (const std::int32_t id : ids) {
        if (id == kEnd) break;
        if (id >= 0 && id < vocabulary_) known.push_back(id);
    }
    std::string text;
    const auto status = model_->processor.Decode(known, &text);
    MILLRACE_ASSERT(status.ok(), reason(status));
    return text;
}

}  // namespace millrace::data
