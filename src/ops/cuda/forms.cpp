#include "ops/cuda/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/log.h"

namespace millrace::ops::cuda {

namespace {

/// What predictions are about: in pinned runs one member, so that others beside it do not change its form.
std::vector<Bound> counted_records(const Context& c, std::span<const Bound> records) {
    std::vector<Bound> counted(records.begin(), records.end());
    for (Bound& bound : counted)
        for (std::size_t slot = 0; c.deterministic && slot < bound.operands.size(); ++slot)
            bound.operands[slot].k = std::min(bound.operands[slot].k, 1);
    return counted;
}

const Form* cheapest_form(const Context& c, std::span<const Form> forms, std::span<const Bound> records) {
    const std::vector<Bound> counted = counted_records(c, records);
    const Form* best = nullptr;
    double least = 0;
    for (const Form& form : forms) {
        if (form.refuses(c, records) != nullptr) continue;
        // Pinned runs replace the library by a plain kernel, which no prediction is about.
        if (c.deterministic && best != nullptr && form.name == std::string("library")) continue;
        const double time = form.predict(c, counted);
        if (best == nullptr || time < least) {
            best = &form;
            least = time;
        }
    }
    return best;
}

/// What a choice is about, in words that mean the same in another run: "dense_forward layers.*.linear1 1 x 1 bf16 64x128
/// 256x128". Layers that differ in their numbers alone share it.
std::string choice_of(const char* subject, std::span<const Bound> records) {
    const Bound& first = records.front();
    std::string text = std::string(subject) + ' ';
    for (const char letter : first.record->layer) {
        const bool digit = std::isdigit(static_cast<unsigned char>(letter)) != 0;
        if (!digit || text.back() != '*') text += digit ? '*' : letter;
    }
    if (records.size() > 1) text += fmt::format(" and {} more", records.size() - 1);
    const tensor::Operand& shape = first[0];
    text += fmt::format(" {} x {} {}", shape.k, shape.g, tensor::name_of(shape.dtype));
    for (const tensor::Operand& o : first.operands)
        if (o.present()) text += fmt::format(" {}x{}", o.rows, o.cols);
    return text;
}

bool is_asked_for(const Context& c, const std::string& choice, const char* name) {
    return std::ranges::find(c.forms, choice + '=' + name) != c.forms.end();
}

/// Whether that is what was done before, in this run or in the one that it continues.
bool was_chosen(const Context& c, const std::string& choice, const char* name) {
    const auto found = c.chosen.find(choice);
    return found != c.chosen.end() ? found->second == name : is_asked_for(c, choice, name);
}

/// The first of a choice stays.
void remember(const Context& c, const std::string& choice, const char* name) {
    if (!c.chosen.emplace(choice, name).second || is_asked_for(c, choice, name)) return;
    const std::string begin = choice + '=';
    for (const std::string& asked : c.forms)
        if (asked.starts_with(begin))
            MILLRACE_LOG(warn, "{} cannot be had here: it is done by {}, and results may differ in rounding", asked, name);
}

}  // namespace

std::vector<std::string> chosen_forms(const Context& c) {
    std::vector<std::string> all;
    for (const auto& [choice, name] : c.chosen) all.push_back(choice + '=' + name);
    return all;
}

bool is_asked_for(const Context& c, const char* subject, const Form& form) { return is_asked_for(c, subject, form.name); }

bool decide(const Context& c, const char* subject, std::span<const Bound> records, bool predicted) {
    if (c.deterministic) return predicted;
    for (const bool asked : {true, false})
        if (is_asked_for(c, subject, asked ? "yes" : "no")) return asked;
    const std::string choice = choice_of(subject, records);
    const bool decided = was_chosen(c, choice, predicted ? "no" : "yes") ? !predicted : predicted;
    remember(c, choice, decided ? "yes" : "no");
    return decided;
}

const Form* choose_form(const Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const auto find = [&](auto wanted) {
        const auto found =
            std::ranges::find_if(forms, [&](const Form& form) { return wanted(form) && form.refuses(c, records) == nullptr; });
        return found != forms.end() ? &*found : nullptr;
    };
    if (const Form* asked = find([&](const Form& form) { return is_asked_for(c, subject, form); })) return asked;
    if (c.deterministic) return cheapest_form(c, forms, records);
    const std::string choice = choice_of(subject, records);
    const Form* form = find([&](const Form& one) { return was_chosen(c, choice, one.name); });
    if (form == nullptr) form = cheapest_form(c, forms, records);
    if (form != nullptr) remember(c, choice, form->name);
    return form;
}

KernelResult make_form(Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const Form* form = choose_form(c, subject, forms, records);
    if (form == nullptr) return base::Error{std::string("there is no way to do ") + subject + " here"};
    MILLRACE_LET(made, form->make(c, records));
    made->form = form->name;
    const std::vector<Bound> counted = counted_records(c, records);
    made->predicted = form->predict(c, counted);
    for (const Form& other : forms) {
        const char* refusal = other.refuses(c, records);
        made->offers.push_back({other.name, refusal ? refusal : "", refusal ? 0 : other.predict(c, counted)});
    }
    return KernelResult(std::move(made));
}

}  // namespace millrace::ops::cuda
