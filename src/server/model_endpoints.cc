#include "server/model_endpoints.h"

#include <string>
#include <vector>

#include "base/status_macros.h"
#include "server/openai_completions_request.h"
#include "server/openai_json.h"

namespace everwarm::server {

Routes ModelEndpoints::routes() {
  const auto to = [this](auto member) {
    return [this, member](const httplib::Request& request,
                          httplib::Response& response) {
      (this->*member)(request, response);
    };
  };
  return {{"GET", "/v1/models", to(&ModelEndpoints::Models)},
          {"GET", "/v1/models/:id", to(&ModelEndpoints::Model)},
          {"POST", "/tokenize", to(&ModelEndpoints::Tokenize)},
          {"POST", "/detokenize", to(&ModelEndpoints::Detokenize)}};
}

void ModelEndpoints::Models(const httplib::Request&,
                            httplib::Response& response) {
  const engine::Engine& engine = service_->engine();
  SetJson(response, 200,
          ModelList(service_->model_id(), service_->created(), engine.model(),
                    engine.context_size()));
}

void ModelEndpoints::Model(const httplib::Request& request,
                           httplib::Response& response) {
  if (request.path_params.at("id") != service_->model_id()) {
    ApiError error = HttpError(404, "no such model here");
    error.code = "model_not_found";
    SetError(response, error);
    return;
  }
  const engine::Engine& engine = service_->engine();
  const Json list = ModelList(service_->model_id(), service_->created(),
                              engine.model(), engine.context_size());
  SetJson(response, 200, list["data"][0]);
}

void ModelEndpoints::Tokenize(const httplib::Request& request,
                              httplib::Response& response) {
  const auto tokens = [&]() -> absl::StatusOr<std::vector<TokenId>> {
    EW_ASSIGN_OR_RETURN(const GenerationGate::Pass pass, service_->Enter());
    EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
    EW_ASSIGN_OR_RETURN(const TokenizeRequest parsed,
                        ParseTokenizeRequest(body));
    return service_->text_front().Tokenize(
        parsed.content, {.add_special = parsed.add_special,
                         .parse_special = parsed.parse_special});
  }();
  if (!tokens.ok()) {
    SetError(response, RefusalError(tokens.status()));
    return;
  }
  SetJson(response, 200, {{"tokens", *tokens}});
}

void ModelEndpoints::Detokenize(const httplib::Request& request,
                                httplib::Response& response) {
  const auto text = [&]() -> absl::StatusOr<std::string> {
    EW_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
    EW_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                        ParseDetokenizeRequest(body));
    EW_RETURN_IF_ERROR(service_->CheckTokens(tokens, "tokens"));
    return service_->text_front().Detokenize(tokens);
  }();
  if (!text.ok()) {
    SetError(response, RefusalError(text.status()));
    return;
  }
  SetJson(response, 200, {{"content", *text}});
}

}  // namespace everwarm::server
