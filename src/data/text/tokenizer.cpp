#include "data/text/tokenizer.h"

#include <fmt/format.h>

#include "data/text/words.h"
#include "io/safetensors.h"

namespace millrace::data {

base::Result<Tokenizer> Tokenizer::of(TokenModelResult made) {
    if (!made.ok()) return made.error();
    return Tokenizer(std::move(made).value());
}

bool Tokenizer::available() { return have_pieces(); }

base::Result<Tokenizer> Tokenizer::train(const std::vector<std::string>& texts, std::int32_t vocabulary) {
    return of(train_pieces(texts, vocabulary));
}

base::Result<Tokenizer> Tokenizer::count_words(std::string_view text, std::int32_t vocabulary) {
    return of(data::count_words(text, vocabulary));
}

base::Result<Tokenizer> Tokenizer::load(std::string bytes, const std::string& place) {
    return of(are_words(bytes) ? load_words(std::move(bytes), place) : load_pieces(std::move(bytes), place));
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
