#include "models/chat_template.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "chat.h"
#include "json-schema-to-grammar.h"
#include "llama.h"
#include "models/call_ids.h"
#include "models/peg_reply_syntax.h"
#include "models/plain_tools.h"
#include "models/quiet_log.h"

namespace everwarm::models {
namespace {

common_chat_msg ToCommon(const ChatMessage& message) {
  common_chat_msg common;
  common.role = message.role;
  common.content = message.content;
  common.reasoning_content = message.reasoning;
  common.tool_name = message.tool_name;
  common.tool_call_id = message.tool_call_id;
  for (const ToolCall& call : message.tool_calls) {
    // The library looks at the first byte of the arguments.
    common.tool_calls.push_back(
        {call.name, call.arguments.empty() ? "{}" : call.arguments, call.id});
  }
  return common;
}

common_chat_tool_choice ToCommon(ToolChoice choice) {
  switch (choice) {
    case ToolChoice::kRequired:
      return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    case ToolChoice::kNone:
      return COMMON_CHAT_TOOL_CHOICE_NONE;
    case ToolChoice::kAuto:
      break;
  }
  return COMMON_CHAT_TOOL_CHOICE_AUTO;
}

common_chat_templates_inputs ToInputs(const ChatPrompt& prompt) {
  common_chat_templates_inputs inputs;
  for (const ChatMessage& message : prompt.messages) {
    inputs.messages.push_back(ToCommon(message));
  }
  for (const ChatTool& tool : prompt.tools) {
    inputs.tools.push_back({tool.name, tool.description, tool.parameters});
  }
  inputs.tool_choice = ToCommon(prompt.tool_choice);
  inputs.parallel_tool_calls = prompt.parallel_tool_calls;
  inputs.json_schema = prompt.json_schema;
  inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
  inputs.enable_thinking = prompt.thinking;
  inputs.chat_template_kwargs = prompt.template_arguments;
  inputs.add_generation_prompt = !prompt.continue_last;
  if (prompt.continue_last) {
    inputs.continue_final_message = COMMON_CHAT_CONTINUATION_CONTENT;
  }
  inputs.use_jinja = true;
  return inputs;
}

GrammarSpec ToGrammar(const common_chat_params& params) {
  GrammarSpec spec;
  spec.text = params.grammar;
  spec.lazy = params.grammar_lazy;
  if (!spec.lazy) {
    spec.behind = params.generation_prompt;
    return spec;
  }
  for (const common_grammar_trigger& trigger : params.grammar_triggers) {
    switch (trigger.type) {
      case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:
        spec.trigger_patterns.push_back(trigger.value);
        break;
      case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL:
        spec.trigger_patterns.push_back(absl::StrCat(
            absl::StartsWith(trigger.value, "^") ? "" : "^", trigger.value,
            absl::EndsWith(trigger.value, "$") ? "" : "$"));
        break;
      default:
        spec.trigger_words.push_back(trigger.value);
        break;
    }
  }
  return spec;
}

std::shared_ptr<const ReplySyntax> ToSyntax(const common_chat_params& params,
                                            bool continues) {
  common_chat_parser_params parser(params);
  parser.is_continuation = continues;
  parser.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
  if (!params.parser.empty()) {
    parser.parser.load(params.parser);
  }
  return MakePegReplySyntax(std::move(parser));
}

ThinkingTags ThinkingTagsOf(const common_chat_params& params) {
  ThinkingTags tags;
  if (params.supports_thinking && !params.thinking_end_tags.empty()) {
    tags.begin = params.thinking_start_tag;
    tags.end = params.thinking_end_tags.front();
    const size_t begun = params.generation_prompt.rfind(tags.begin);
    tags.open =
        begun != std::string::npos &&
        params.generation_prompt.find(tags.end, begun) == std::string::npos;
  }
  return tags;
}

bool HasToolsInHistory(const ChatPrompt& prompt) {
  return std::any_of(prompt.messages.begin(), prompt.messages.end(),
                     [](const ChatMessage& message) {
                       return message.role == "tool" ||
                              !message.tool_calls.empty();
                     });
}

// What a rule of a grammar that the library wrote, a rule to a line, says;
// empty: there is no such rule.
std::string RuleBody(const std::string& grammar, const std::string& name) {
  const std::string begin = absl::StrCat("\n", name, " ::= ");
  const std::string text = absl::StrCat("\n", grammar);
  const size_t found = text.find(begin);
  if (found == std::string::npos) {
    return std::string();
  }
  const size_t body = found + begin.size();
  return text.substr(body, text.find('\n', body) - body);
}

size_t CommonPrefix(const std::string& a, const std::string& b) {
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

struct ChatTemplate::Impl {
  common_chat_templates_ptr templates;
  // Text of the token that Tokenize() puts first; empty when it puts none.
  std::string bos;
  // The template describes tools and writes their calls by itself.
  bool knows_tools = false;
  // It takes no ids of calls but those of NineLetterCallId().
  bool nine_letter_ids = false;

  common_chat_templates_inputs Inputs(const ChatPrompt& prompt) const;
  common_chat_params Apply(const common_chat_templates_inputs& inputs) const {
    return common_chat_templates_apply(templates.get(), inputs);
  }
  absl::StatusOr<RenderedPrompt> Render(const ChatPrompt& prompt) const;
  absl::Status AddReplyForm(const ChatPrompt& prompt,
                            const common_chat_params& params,
                            RenderedPrompt& rendered) const;
  bool TakesCallId(const std::string& id) const;
  common_chat_params ReplyParams(const ChatPrompt& prompt,
                                 ToolChoice choice) const;
  std::optional<GrammarSpec> CallsAlone(
      const ChatPrompt& prompt, const common_chat_params& required) const;
  size_t CueBytes(const ChatPrompt& prompt) const;
  size_t ProbeCue(const ChatPrompt& prompt) const;

  mutable Mutex mutex;
  // By everything that the cue may depend on; see CueBytes().
  mutable absl::flat_hash_map<std::string, size_t> cues ABSL_GUARDED_BY(mutex);
};

common_chat_templates_inputs ChatTemplate::Impl::Inputs(
    const ChatPrompt& prompt) const {
  common_chat_templates_inputs inputs = ToInputs(prompt);
  if (nine_letter_ids) {
    for (common_chat_msg& message : inputs.messages) {
      if (!message.tool_call_id.empty()) {
        message.tool_call_id = NineLetterCallId(message.tool_call_id);
      }
      for (common_chat_tool_call& call : message.tool_calls) {
        call.id = NineLetterCallId(call.id);
      }
    }
  }
  return inputs;
}

// Whether a call of that id and its result can be rendered.
bool ChatTemplate::Impl::TakesCallId(const std::string& id) const {
  ChatPrompt probe;
  probe.tools = {{"look", "Looks.", R"({"type":"object","properties":{}})"}};
  probe.messages = {{"user", "question"}, {"assistant", ""}, {"tool", "seen"}};
  probe.messages[1].tool_calls = {{id, "look", "{}"}};
  probe.messages[2].tool_name = "look";
  probe.messages[2].tool_call_id = id;
  try {
    Apply(Inputs(probe));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// The parameters of the reply, where they are not those of the prompt.
common_chat_params ChatTemplate::Impl::ReplyParams(const ChatPrompt& prompt,
                                                   ToolChoice choice) const {
  ChatPrompt reply = prompt;
  reply.tool_choice = choice;
  if (!prompt.required_tool.empty()) {
    // All tools are described, so that the prompt stays what it was; one may be
    // called.
    std::erase_if(reply.tools, [&](const ChatTool& tool) {
      return tool.name != prompt.required_tool;
    });
  }
  if (!prompt.tools.empty() && prompt.tool_choice == ToolChoice::kRequired) {
    reply.json_schema.clear();
  }
  return Apply(Inputs(reply));
}

// The library's grammar of a required call lets the model talk before it, for
// ever if it likes. The same with its rule of the calls as the root does not.
// Nothing where that rule is not told apart, or where the model is to think
// first.
std::optional<GrammarSpec> ChatTemplate::Impl::CallsAlone(
    const ChatPrompt& prompt, const common_chat_params& required) const {
  const common_chat_params automatic = ReplyParams(prompt, ToolChoice::kAuto);
  const GrammarSpec lazy = ToGrammar(automatic);
  const bool thinks = automatic.supports_thinking && prompt.thinking;
  if (thinks || !lazy.lazy || lazy.trigger_words.empty() ||
      !lazy.trigger_patterns.empty()) {
    return std::nullopt;
  }
  // A lazy grammar is of the rules that its trigger begins; where there are
  // two, the second holds the first.
  const std::string begun = RuleBody(lazy.text, "root");
  if (begun != "tool-call" && begun != "tool-calls" &&
      begun != "tool-call | tool-calls") {
    return std::nullopt;
  }
  std::string calls = absl::EndsWith(begun, "s") ? "tool-calls" : "tool-call";
  // Several calls may be several times what the trigger begins; then the first
  // rule alone is one of them.
  std::string trigger = gbnf_format_literal(lazy.trigger_words.front());
  trigger.pop_back();
  if (!prompt.parallel_tool_calls &&
      absl::StartsWith(RuleBody(required.grammar, "tool-call"), trigger)) {
    calls = "tool-call";
  }
  const std::string root = RuleBody(required.grammar, "root");
  if (root.empty() || RuleBody(required.grammar, calls).empty()) {
    return std::nullopt;
  }
  return GrammarSpec{
      .text = absl::StrReplaceAll(absl::StrCat("\n", required.grammar),
                                  {{absl::StrCat("\nroot ::= ", root),
                                    absl::StrCat("\nroot ::= ", calls)}})};
}

absl::Status ChatTemplate::Impl::AddReplyForm(const ChatPrompt& prompt,
                                              const common_chat_params& params,
                                              RenderedPrompt& rendered) const {
  const bool calls =
      !prompt.tools.empty() && prompt.tool_choice != ToolChoice::kNone;
  if (!prompt.grammar.empty()) {
    rendered.grammar = GrammarSpec{.text = prompt.grammar};
    return absl::OkStatus();
  }
  if (calls && !knows_tools) {
    EW_ASSIGN_OR_RETURN(PlainToolReply reply,
                        PlainToolReplyOf(prompt, ThinkingTagsOf(params)));
    rendered.grammar = std::move(reply.grammar);
    rendered.syntax = std::move(reply.syntax);
    return absl::OkStatus();
  }
  const bool formed = calls || !prompt.json_schema.empty();
  if (!formed && !params.supports_thinking) {
    return absl::OkStatus();
  }
  const bool same =
      prompt.required_tool.empty() && (prompt.json_schema.empty() || !calls);
  const common_chat_params reply =
      same ? params : ReplyParams(prompt, prompt.tool_choice);
  rendered.syntax = ToSyntax(reply, prompt.continue_last);
  rendered.shown_control_texts = reply.preserved_tokens;
  if (calls && prompt.tool_choice == ToolChoice::kRequired) {
    rendered.grammar = CallsAlone(prompt, reply);
  }
  if (!rendered.grammar && !reply.grammar.empty()) {
    rendered.grammar = ToGrammar(reply);
  }
  return absl::OkStatus();
}

absl::StatusOr<RenderedPrompt> ChatTemplate::Impl::Render(
    const ChatPrompt& prompt) const {
  const bool plain =
      !knows_tools && (!prompt.tools.empty() || HasToolsInHistory(prompt));
  ChatPrompt shown = prompt;
  if (plain) {
    EW_ASSIGN_OR_RETURN(shown.messages, DescribePlainTools(prompt));
    shown.tools.clear();
  }
  const common_chat_params params = Apply(Inputs(shown));
  RenderedPrompt rendered;
  rendered.add_special = bos.empty() || !absl::StartsWith(params.prompt, bos);
  rendered.text = params.prompt;
  rendered.stops = params.additional_stops;
  EW_RETURN_IF_ERROR(AddReplyForm(prompt, params, rendered));
  if (!prompt.continue_last) {
    rendered.cue_bytes = std::min(CueBytes(shown), rendered.text.size());
  }
  return rendered;
}

// The cue depends on how the template ends a prompt, not on the conversation,
// so that short ones tell it once and for all.
size_t ChatTemplate::Impl::CueBytes(const ChatPrompt& prompt) const {
  const bool after_tool =
      !prompt.messages.empty() && prompt.messages.back().role == "tool";
  std::string key =
      absl::StrCat(prompt.thinking ? "t" : "", prompt.tools.empty() ? "" : "f",
                   after_tool ? "r" : "");
  for (const auto& [name, value] : prompt.template_arguments) {
    absl::StrAppend(&key, "\n", name, "=", value);
  }
  {
    MutexLock lock(mutex);
    if (const auto found = cues.find(key); found != cues.end()) {
      return found->second;
    }
  }
  ChatPrompt probe;
  probe.thinking = prompt.thinking;
  probe.template_arguments = prompt.template_arguments;
  probe.messages = {{"user", "question"}};
  if (!prompt.tools.empty() || after_tool) {
    probe.tools = {{"look", "Looks.", R"({"type":"object","properties":{}})"}};
  }
  if (after_tool) {
    probe.messages.push_back({"assistant", ""});
    probe.messages.back().tool_calls = {{"call00000", "look", "{}"}};
    probe.messages.push_back({"tool", "seen"});
    probe.messages.back().tool_name = "look";
    probe.messages.back().tool_call_id = "call00000";
  }
  const size_t cue = ProbeCue(probe);
  constexpr size_t kMostCues = 256;
  MutexLock lock(mutex);
  if (cues.size() >= kMostCues) {
    cues.clear();
  }
  cues[key] = cue;
  return cue;
}

// What of the prompt's end neither a plain reply nor one with a call keeps,
// once the user has written again.
size_t ChatTemplate::Impl::ProbeCue(const ChatPrompt& prompt) const {
  const auto render = [this](const ChatPrompt& conversation) -> std::string {
    try {
      return Apply(Inputs(conversation)).prompt;
    } catch (const std::exception&) {
      return "";  // it does not take such a conversation
    }
  };
  const std::string now = render(prompt);
  if (now.empty()) {
    return 0;
  }
  size_t kept = now.size();
  ChatPrompt replied = prompt;
  replied.messages.push_back({"assistant", "1 reply"});
  replied.messages.push_back({"user", "next"});
  if (const std::string text = render(replied); !text.empty()) {
    kept = std::min(kept, CommonPrefix(now, text));
  }
  if (knows_tools) {
    ChatPrompt called = prompt;
    if (called.tools.empty()) {
      called.tools = {
          {"look", "Looks.", R"({"type":"object","properties":{}})"}};
    }
    const std::string before = render(called);
    called.messages.push_back({"assistant", ""});
    called.messages.back().tool_calls = {{"call00001", "look", "{}"}};
    called.messages.push_back({"tool", "seen"});
    called.messages.back().tool_name = "look";
    called.messages.back().tool_call_id = "call00001";
    called.messages.push_back({"user", "next"});
    const std::string text = render(called);
    if (!text.empty() && !before.empty()) {
      const size_t lost = before.size() - CommonPrefix(before, text);
      kept = std::min(kept, now.size() - std::min(lost, now.size()));
    }
  }
  return now.size() - kept;
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(
    const Vocabulary& vocabulary) {
  SilenceLibraries();
  auto impl = std::make_unique<Impl>();
  const llama_vocab* vocab = vocabulary.llama();
  if (llama_vocab_get_add_bos(vocab)) {
    impl->bos = vocabulary.PieceWithControl(llama_vocab_bos(vocab));
  }
  const llama_model* model = vocabulary.llama_model_handle();
  try {
    // llama-common loses the parser's words on the way out, so it parses once
    // for them alone.
    if (const char* source = llama_model_chat_template(model, nullptr)) {
      const common_chat_template parsed(source, "", "");
    }
    impl->templates = common_chat_templates_init(model, "");
    const auto abilities =
        common_chat_templates_get_caps(impl->templates.get());
    const auto has = [&](const char* name) {
      const auto found = abilities.find(name);
      return found != abilities.end() && found->second;
    };
    impl->knows_tools = has("supports_tools") && has("supports_tool_calls");
    impl->nine_letter_ids = impl->knows_tools &&
                            !impl->TakesCallId("call_00000000") &&
                            impl->TakesCallId("call00000");
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the file's chat template does not parse: ", error.what()));
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

absl::StatusOr<RenderedPrompt> ChatTemplate::Render(
    const ChatPrompt& prompt) const {
  if (!prompt.json_schema.empty() && !prompt.tools.empty() &&
      prompt.tool_choice == ToolChoice::kAuto) {
    return absl::InvalidArgumentError(
        "a form of the reply and tools that may or may not be called cannot "
        "be combined; require a tool, or forbid them");
  }
  try {
    return impl_->Render(prompt);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the chat template refuses these messages: ", error.what()));
  }
}

}  // namespace everwarm::models
