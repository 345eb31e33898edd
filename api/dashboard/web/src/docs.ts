// The page at /docs: every call of the API, described and to try.
import SwaggerUI from 'swagger-ui-dist/swagger-ui-es-bundle.js';
import 'swagger-ui-dist/swagger-ui.css';

SwaggerUI({
  url: '/openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  filter: true,
  tryItOutEnabled: true,
  // Nothing is sent to other hosts.
  validatorUrl: null,
});
